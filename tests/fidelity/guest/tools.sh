#!/bin/bash
# `tools.sh ID`: runs one probe of the fidelity table that needs whole programs of the image. Runs in a fresh
# folder on the root file system; prints one short line. What a probe sets up it takes down by `defer`.
here=$(cd "$(dirname "$0")" && pwd)
undo=()
defer() { undo=("$*" "${undo[@]}"); }
finish() { for line in "${undo[@]}"; do eval "$line" >/dev/null 2>&1; done; }
trap finish EXIT
# Runs a step; its failure is the result.
step() {
  local out
  out=$("$@" 2>&1) || { echo "$1 failed: $(head -n 1 <<<"$out" | tr -d '\r' | cut -c 1-100)"; exit 3; }
}
wait_for() { for _ in $(seq 150); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done; echo "never: $*"; exit 3; }

loop_mount() {
  truncate -s 16M disk
  step mkfs.ext4 -q disk
  mkdir m
  defer umount m
  step mount -o loop disk m
  echo hello >m/f && cat m/f
}
loop_device() {
  truncate -s 16M disk
  device=$(losetup --find --show --partscan disk 2>&1) || { echo "losetup failed: ${device##*: }"; exit 3; }
  defer losetup -d "$device"
  step sfdisk -q "$device" <<<'start=2048, type=83'
  wait_for test -b "${device}p1"
  stat -c '%G %a' "$device"
}
squashfs() {
  mkdir d m && echo hello >d/f
  step mksquashfs d image -quiet -no-progress
  defer umount m
  step mount -o loop image m
  cat m/f
}
fuse() {
  truncate -s 16M disk
  step mkfs.ext4 -q disk
  mkdir m
  defer fusermount -u m
  step fuse2fs disk m
  wait_for mountpoint -q m
  echo hello >m/f && cat m/f
}
fuse_user() {
  # In a namespace of the user's own: no setuid program helps.
  mkdir d && echo hello >d/f && truncate -s 16M disk
  step mkfs.ext4 -q -d d disk
  chmod 666 disk && chmod 777 . && mkdir -m 777 m
  setpriv --reuid=65534 --regid=65534 --clear-groups unshare -Urm sh -c \
    'fuse2fs disk m && for _ in 1 2 3 4 5 6 7 8 9; do mountpoint -q m && break; sleep 0.3; done; cat m/f' 2>&1 | tail -1
}
swap_file() {
  dd if=/dev/zero of=swap bs=1M count=8 status=none
  chmod 600 swap
  step mkswap -q swap
  defer swapoff swap
  step swapon swap
  awk 'NR > 1 {print $2, $3}' /proc/swaps
}
zram() {
  step modprobe zram
  defer 'swapoff /dev/zram0; modprobe -r zram'
  wait_for test -b /dev/zram0
  echo 16M >/sys/block/zram0/disksize && step mkswap -q /dev/zram0 && step swapon /dev/zram0 && echo works
}
device_mapper() {
  defer dmsetup remove fidelity
  step dmsetup create fidelity --table '0 2048 zero'
  wait_for test -b /dev/mapper/fidelity
  dd if=/dev/mapper/fidelity bs=4096 count=1 status=none | od -An -tx1 | head -1
}
nbd() {
  step modprobe nbd nbds_max=2
  wait_for test -b /dev/nbd0
  stat -c '%G %a' /dev/nbd0
}
unshare_user() {
  setpriv --reuid=65534 --regid=65534 --clear-groups unshare -Urmnpf --mount-proc sh -c 'id -u; set -- /proc/[0-9]*; echo $#' 2>&1 | tr '\n' ' '
}
bubblewrap() {
  setpriv --reuid=65534 --regid=65534 --clear-groups bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev sh -c 'echo $$' 2>&1 | tail -1
}
overlay_tool() {
  mkdir l u w m && echo hello >l/f
  defer umount m
  step mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m
  echo more >>m/f && cat m/f u/f | tr '\n' ' '
}
links() {
  step ip link add fid0 type dummy
  defer ip link del fid0
  while read -r label arguments; do
    # shellcheck disable=SC2086
    if out=$(ip link add fid1 $arguments 2>&1); then echo "$label works"; else echo "$label ${out##*: }"; fi
    ip link del fid1 2>/dev/null
  done <<'LIST'
dummy type dummy
bridge type bridge
veth type veth peer name fid2
ifb type ifb
wireguard type wireguard
vxlan type vxlan id 7 dstport 4789
macvlan link fid0 type macvlan
vlan link fid0 type vlan id 7
ipvlan link fid0 type ipvlan
bond type bond
vrf type vrf table 7
gretap type gretap local 127.0.0.1 remote 127.0.0.2
sit type sit local 127.0.0.1 remote 127.0.0.2
vcan type vcan
nlmon type nlmon
LIST
}
netns() {
  defer 'ip netns del fidelity; ip link del fidv0'
  step ip netns add fidelity
  step ip link add fidv0 type veth peer name fidv1 netns fidelity
  step ip addr add 10.99.0.1/24 dev fidv0
  step ip link set fidv0 up
  step ip -n fidelity addr add 10.99.0.2/24 dev fidv1
  step ip -n fidelity link set fidv1 up
  step ping -c 1 -W 5 10.99.0.2
  echo works
}
iptables_nft() {
  defer 'iptables-nft -t nat -D POSTROUTING -s 10.98.0.0/16 -m comment --comment fid -j MASQUERADE'
  step iptables-nft -t nat -A POSTROUTING -s 10.98.0.0/16 -m comment --comment fid -j MASQUERADE
  iptables-nft -t nat -S POSTROUTING | tail -1
}
iptables_legacy() {
  defer 'iptables-legacy -D INPUT -m conntrack --ctstate INVALID -j DROP'
  step iptables-legacy -A INPUT -m conntrack --ctstate INVALID -j DROP
  iptables-legacy -S INPUT | tail -1
}
nftables() {
  defer nft delete table inet fid
  step nft add table inet fid
  step nft add chain inet fid out '{ type filter hook output priority 0; }'
  step nft add rule inet fid out tcp dport 1 ct state new counter reject
  step nft add set inet fid names '{ type ipv4_addr; flags interval; }'
  nft list table inet fid | wc -l
}
traffic_control() {
  defer tc qdisc del dev lo root
  step tc qdisc add dev lo root netem delay 1ms
  tc qdisc show dev lo | cut -d' ' -f2
}
wireguard() {
  defer ip link del fidwg
  step ip link add fidwg type wireguard
  wg genkey >key && step wg set fidwg private-key key listen-port 51999
  wg show fidwg listen-port
}
modules_tool() {
  [ "$(modprobe --show-depends overlay | wc -l)" -gt 0 ] || { echo "modprobe finds no overlay"; exit 3; }
  step modprobe dummy numdummies=0
  lsmod | grep -c '^dummy '
  modinfo -F name dummy
  step modprobe -r dummy
  modinfo -F vermagic dummy | cut -d' ' -f1 | grep -qx "$(uname -r)" && echo 'built for this kernel'
}
module_list() {
  for name in overlay br_netfilter ip_vs nf_conntrack xt_set ip_set tcp_bbr sch_fq sch_cake btrfs xfs squashfs isofs vfat udf nfs cifs ceph 9p virtiofs fuse nbd loop zram dm_crypt dm_snapshot raid1 tun wireguard vsock vsock_loopback vhost_net kvm openvswitch tls nfsd binfmt_misc crypto_user algif_aead configfs null_blk; do
    modprobe "$name" >/dev/null 2>&1 && echo "$name yes" || echo "$name no"
  done
}
modules_on_demand() {
  # By mount, ioctl and request of the kernel; never by modprobe.
  mkdir m
  for type in btrfs xfs udf erofs nfs4 9p; do
    mount -t $type none m >/dev/null 2>&1
    grep -qw "$type" /proc/filesystems && echo "$type loaded" || echo "$type not loaded"
  done
}
binfmt() {
  mountpoint -q /proc/sys/fs/binfmt_misc || { defer umount /proc/sys/fs/binfmt_misc; step mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc; }
  ls /proc/sys/fs/binfmt_misc >/dev/null
  printf '#!/bin/sh\necho "interpreted"\n' >i && chmod +x i
  defer 'echo -1 >/proc/sys/fs/binfmt_misc/fidelity'
  echo ":fidelity:E::fid::$PWD/i:" >/proc/sys/fs/binfmt_misc/register || exit 3
  touch x.fid && chmod +x x.fid && ./x.fid
}
sysctl_writes() {
  for pair in kernel.pid_max=4194303 vm.overcommit_memory=1 net.core.somaxconn=8192 net.ipv4.ip_forward=1 fs.inotify.max_user_watches=99999 fs.file-max=999999 vm.swappiness=7 vm.max_map_count=262144 kernel.core_pattern=core.%p kernel.panic=7 net.ipv4.ip_local_port_range="20000 60999" kernel.shmmax=68719476736 net.ipv4.tcp_fastopen=3; do
    name=${pair%%=*} file=/proc/sys/$(tr . / <<<"${pair%%=*}")
    old=$(cat "$file" 2>/dev/null) || { echo "$name is not there"; continue; }
    if echo "${pair#*=}" 2>/dev/null >"$file"; then
      [ "$(tr '\t' ' ' <"$file")" = "${pair#*=}" ] && echo "$name set" || echo "$name ignored"
      echo "$old" >"$file"
    else echo "$name refused"; fi 2>/dev/null
  done
}
core_dump() {
  cat /proc/sys/kernel/core_pattern
  (ulimit -c unlimited; sh -c 'kill -SEGV $$') 2>/dev/null
  ls core* 2>/dev/null | sed 's/[0-9]\+/PID/'
}
core_handler() {
  old=$(cat /proc/sys/kernel/core_pattern)
  printf '#!/bin/sh\ncat >/dev/null\necho "signal $1" >%s/handled\n' "$PWD" >handler && chmod +x handler
  defer "echo '$old' >/proc/sys/kernel/core_pattern"
  echo "|$PWD/handler %s" >/proc/sys/kernel/core_pattern || exit 3
  (ulimit -c unlimited; sh -c 'kill -SEGV $$') 2>/dev/null
  wait_for test -s handled
  cat handled
}
sudo_user() {
  echo 'nobody ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/fidelity
  defer rm -f /etc/sudoers.d/fidelity
  setpriv --reuid=65534 --regid=65534 --clear-groups sudo -n id -u 2>&1 | tail -1
}
user_add() {
  defer userdel -r fiduser
  step useradd -m -s /bin/bash fiduser
  su - fiduser -c 'id -un; pwd; umask; ulimit -Sn; ulimit -Hn' 2>&1 | tr '\n' ' '
}
file_capability() {
  cp /bin/ping p && chmod 755 . && step setcap cap_net_raw+ep p
  getcap p
  setpriv --reuid=65534 --regid=65534 --clear-groups ./p -c 1 -W 5 127.0.0.1 >/dev/null && echo works
}
acl() {
  touch f && step setfacl -m u:65534:rw f
  getfacl -n f | grep -c 'user:65534:rw-'
}
ping_user() { setpriv --reuid=65534 --regid=65534 --clear-groups ping -c 1 -W 5 127.0.0.1 2>&1 | grep -o '[0-9]* received'; }
ping_six() { ping -6 -c 1 -W 5 ::1 2>&1 | grep -o '[0-9]* received'; }
address() {
  ip -4 -br addr show dev eth0 2>&1 | awk '{print $1, $2, $3}'
  ip route show default | awk '{print $1, $2, $3, $4, $5}'
  cat /sys/class/net/eth0/{mtu,type,address}
}
address_six() { ip -6 addr show dev eth0 2>&1 | grep -q 'inet6 fe80' && echo link-local || echo none; }
ping_gateway() { ping -c 1 -W 5 "$(ip route show default | awk '{print $3}')" 2>&1 | grep -o '[0-9]* received'; }
resolve_glibc() {
  getent hosts localhost | awk '{print $1}'
  getent ahostsv4 "$(hostname)" >/dev/null && echo 'own name resolves'
  python3 -c 'import socket
try: socket.getaddrinfo("no-such-name.invalid", 80)
except socket.gaierror as error: print(error.args[0] == socket.EAI_NONAME and "no such name" or error)'
}
resolve_musl() { "$here/resolve-musl" localhost "$(hostname)" no-such-name.invalid 2>&1; }
resolv_conf() {
  [ -L /etc/resolv.conf ] && echo link || stat -c '%F %a %U' /etc/resolv.conf
  grep -c '^nameserver' /etc/resolv.conf
  cp -L /etc/resolv.conf saved
  cp saved /etc/resolv.conf.new && mv /etc/resolv.conf.new /etc/resolv.conf && echo 'can be replaced'
  rm /etc/resolv.conf && echo 'can be removed'
  ln -s ../run/nothing /etc/resolv.conf && echo 'can be a link'
  rm -f /etc/resolv.conf
  cat saved >/etc/resolv.conf
}
names() {
  [ "$(hostname)" = "$(cat /etc/hostname)" ] && echo 'hostname is that of /etc/hostname'
  [ "$(cat /proc/sys/kernel/hostname)" = "$(uname -n)" ] && echo 'uname agrees'
  [ "$(wc -c </etc/machine-id)" = 33 ] && echo 'machine-id is set'
  getent hosts "$(hostname)" >/dev/null && echo 'the name is in hosts'
  getent hosts ip6-localhost | awk '{print $1}'
  findmnt -n /etc/hostname /etc/hosts >/dev/null || echo 'ordinary files'
  mv /etc/hosts /etc/hosts.fid && mv /etc/hosts.fid /etc/hosts && echo 'can be replaced'
}
locales() { locale -a | tr '\n' ' '; LC_ALL=C.UTF-8 locale charmap; }
kernel_name() { uname -srvmo; [ -r "/boot/config-$(uname -r)" ] && echo 'its config is in /boot'; [ -e /proc/config.gz ] && echo config.gz; true; }
git_repository() {
  git init -q r && cd r && git config user.email a@b && git config user.name a
  for i in $(seq 50); do mkdir "d$i"; for j in $(seq 20); do echo "$i $j" >"d$i/f$j"; done; done
  step git add . && step git commit -qm one && step git gc -q && step git clone -q . ../c && step git fsck
  git ls-files | wc -l
}
tmux_session() {
  export TMUX_TMPDIR=$PWD
  defer tmux kill-server
  step tmux new-session -d -x 80 -y 24
  sleep 1
  tmux send-keys 'echo in$((40+2))' Enter
  wait_for sh -c 'tmux capture-pane -p | grep -q in42'
  echo works
}
ssh_server() {
  mkdir -p /run/sshd && step ssh-keygen -q -t ed25519 -N '' -f key
  cp key.pub allowed && chmod 700 .
  step ssh-keygen -q -t ed25519 -N '' -f host
  /usr/sbin/sshd -p 2222 -h "$PWD/host" -o AuthorizedKeysFile="$PWD/allowed" -o StrictModes=no -o PidFile="$PWD/pid" -o UsePAM=no 2>err || { tail -1 err; exit 3; }
  defer 'kill $(cat pid)'
  timeout 40 ssh -p 2222 -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -tt root@127.0.0.1 'tty; echo $((40+2))' 2>err | tr -d '\r' | sed 's/[0-9]*$//;t' | head -1
}
gdb_run() {
  timeout 100 gdb -nx -batch -ex 'break _exit' -ex run -ex 'info registers rip' -ex continue /bin/true 2>&1 | grep -o 'exited normally\|Operation not permitted' | head -1
}
strace_run() { strace -f -e trace=execve sh -c /bin/true 2>&1 | grep -c execve; }
script_tool() { script -qec 'tty; stty size' /dev/null </dev/null 2>&1 | tr -d '\r' | sed 's/[0-9]\+/N/g' | tr '\n' ' '; }
package_install() {
  mkdir -p p/DEBIAN p/usr/share/fid && echo hello >p/usr/share/fid/f
  printf 'Package: fidelity-probe\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: d\n' >p/DEBIAN/control
  printf '#!/bin/sh\nln /usr/share/fid/f /usr/share/fid/linked\n' >p/DEBIAN/postinst && chmod 755 p/DEBIAN/postinst
  step dpkg-deb --root-owner-group -b p p.deb
  defer 'rm -f /usr/share/fid/linked; dpkg -P fidelity-probe'
  step dpkg -i p.deb
  step apt-get check
  dpkg -s fidelity-probe | grep '^Status'
}
hwclock_tool() { hwclock -r >out 2>&1 && echo reads || tail -1 out; }
lsblk_tool() { lsblk -dn -o NAME,TYPE,RO,ROTA /dev/vda 2>&1; df --output=source,fstype / | tail -1; findmnt -n -o SOURCE /; }
freeze() {
  truncate -s 16M disk && step mkfs.ext4 -q disk && mkdir m
  defer umount m
  step mount -o loop disk m
  step fsfreeze -f m && step fsfreeze -u m && step fstrim m && echo works
}
device_links() {
  for path in /dev/fd /dev/stdin /dev/stdout /dev/core /dev/log /dev/disk/by-uuid /dev/block /dev/char /dev/initctl; do [ -e "$path" ] && echo "$path"; done
}
chroot_tool() { mkdir -p c/bin && cp "$here/resolve-musl" c/bin/r && chroot c /bin/r 127.0.0.1; }
systemd_state() { systemctl is-system-running 2>&1; }
journal() { logger -t fidelity hello 2>&1; sleep 1; journalctl -t fidelity -o cat -n 1 2>&1 | tail -1; }
timer_unit() { systemd-run --wait --quiet --collect echo 2>&1 && echo works; }
process_one() { cat /proc/1/comm; }
login_session() { loginctl --no-legend list-sessions 2>&1 | wc -l; cat /proc/self/loginuid; }
oom_kill() {
  # Without a group of its own: the largest process goes, and nothing else.
  sleep 300 & bystander=$!
  echo 1 >/proc/sys/vm/overcommit_memory
  defer 'echo 0 >/proc/sys/vm/overcommit_memory'
  (echo 500 >/proc/self/oom_score_adj; exec python3 -c 'b = []
while True: b.append(bytearray(16 << 20))') 2>/dev/null
  status=$?
  kill -0 $bystander && echo "exit $status, the bystander lives"
  kill $bystander
}

name=${1//-/_}
declare -F "$name" >/dev/null || { echo "there is no probe $1" >&2; exit 2; }
"$name"

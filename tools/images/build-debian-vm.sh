#!/bin/bash
# Builds the image of `make fidelity` and `make bench G=linux`: Debian 12 as a machine has it (systemd, the guest's kernel
# package with its modules and initrd, sshd, and the tools that the probes use). Called by tools/fidelity.sh, tools/bench-linux.sh.
#
#   build-debian-vm.sh [--more a,b] LAYER.tar ARCHIVE.tar   does nothing if both are there
#   build-debian-vm.sh [--more a,b] --key                   prints the key of its content: of this file, the kernel package, a and b
#
# --more: packages besides. Docker and containerd, if among them, do not start at boot.
set -euo pipefail
cd "$(dirname "$0")/../.."
kernel=$(find .cache/kernel -maxdepth 1 -name 'linux-image-[0-9]*.deb' | sort -V | tail -n1)
[ -n "$kernel" ] || { echo "no kernel package in .cache/kernel: run make build" >&2; exit 1; }
more=
if [ "${1:-}" = --more ]; then more=$2; shift 2; fi
if [ "${1:-}" = --key ]; then
  { cat tools/images/build-debian-vm.sh; basename "$kernel"; echo "$more"; } | sha256sum | cut -c 1-12
  exit 0
fi
layer=$1 archive=$2
[ ! -s "$layer" ] || [ ! -s "$archive" ] || exit 0

export SOURCE_DATE_EPOCH=1686355200
mkdir -p "$(dirname "$layer")"
work=$(mktemp -d "${TMPDIR:-/tmp}/sandlot-debian.XXXXXX")
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
tools/setup/derive-source.sh bookworm >"$work/debian.$(tools/setup/derive-source.sh bookworm --format)"
apt-config dump Acquire | grep -E '^Acquire::(https?::|Check-|Retries)' >"$work/10-as-host" || true
cp "$kernel" "$work/kernel.deb"

packages=(
  systemd-sysv udev dbus libpam-systemd openssh-server procps kmod initramfs-tools linux-base zstd ca-certificates
  python3 iproute2 iputils-ping iptables nftables wireguard-tools fuse2fs squashfuse squashfs-tools e2fsprogs fdisk
  dmsetup bubblewrap sudo libcap2-bin attr acl git tmux gdb-minimal strace util-linux-extra bsdutils passwd login
  adduser hostname mount
)
IFS=, read -r -a added <<<"$more"
packages+=("${added[@]}")
# The kernel comes from the package that the guest's own kernel is taken from, its initrd from initramfs-tools.
cat >"$work/set-up" <<'SH'
#!/bin/sh
set -e
root=$1
echo virtio_mmio >>"$root/etc/initramfs-tools/modules"
chroot "$root" dpkg -i /tmp/kernel.deb
rm "$root/tmp/kernel.deb"
chroot "$root" passwd -d root
echo fidelity >"$root/etc/hostname"
printf '127.0.0.1\tlocalhost\n127.0.1.1\tfidelity\n\n::1\tlocalhost ip6-localhost ip6-loopback\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n' >"$root/etc/hosts"
echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
printf '/dev/vda / ext4 errors=remount-ro 0 1\n' >"$root/etc/fstab"
printf '[Match]\nName=eth0\n\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n' >"$root/etc/systemd/network/eth0.network"
chroot "$root" systemctl enable systemd-networkd
chroot "$root" systemctl disable apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer
for unit in docker.service docker.socket containerd.service; do
  [ ! -e "$root/lib/systemd/system/$unit" ] || chroot "$root" systemctl disable "$unit"
done
rm -rf "$root"/var/log/*.log "$root"/var/log/apt "$root"/etc/machine-id "$root"/etc/ssh/ssh_host_*
touch "$root/etc/machine-id"
chroot "$root" ssh-keygen -A
SH
chmod 755 "$work/set-up"
nice -n 10 mmdebstrap --quiet --variant=apt --format=tar --include="$(IFS=,; echo "${packages[*]}")" \
  --aptopt="$work/10-as-host" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='force-unsafe-io' \
  --customize-hook="copy-in '$work/kernel.deb' /tmp" --customize-hook="$work/set-up" \
  bookworm "$work/layer.tar" "$work"/debian.*
cp "$work/layer.tar" "$layer.new"
tools/images/docker-archive.sh "$work/layer.tar" "$work/image.tar" fidelity:latest '["/bin/bash"]' \
  '"org.sandlot.stand-in":"Debian 12 as a machine"'
mv "$work/image.tar" "$archive"
mv "$layer.new" "$layer"
echo "built $archive ($(du -m "$archive" | cut -f1) MiB)"

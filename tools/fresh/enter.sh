#!/bin/bash
# Second part of test-fresh.sh, in its new namespaces: mounts what a machine has, takes the host's
# configuration read-only, and changes root for inside.sh. `enter.sh ROOT CHECKOUT LIMIT`.
set -euo pipefail
root=$1 checkout=$2 limit=$3
hostname fresh

mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
# Of this network namespace, so that the host's interfaces are not seen.
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm dev/net
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
# Not a tmpfs of memory's size: images and test files go here.
mount -t tmpfs -o mode=1777,size=8G tmpfs tmp
node() { mknod -m "$2" "dev/$1" c "$3" "$4"; }
node null 666 1 3
node zero 666 1 5
node full 666 1 7
node random 666 1 8
node urandom 666 1 9
node tty 666 5 0
mknod -m 600 dev/net/tun c 10 200
[ ! -e /dev/kvm ] || mknod -m 660 dev/kvm c 10 232
for link in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do
  ln -s "${link#*:}" "dev/${link%%:*}"
done

# read_only SOURCE TARGET: a file or folder of the host, if it is there.
read_only() {
  [ -e "$1" ] || return 0
  if [ -d "$1" ]; then mkdir -p "./$2"; else mkdir -p "./$(dirname "$2")"; touch "./$2"; fi
  mount --bind "$(realpath "$1")" "./$2"
  mount -o remount,bind,ro "./$2"
}
home=${HOME:-/root}
# npm reads the one or the other, depending on who packaged it.
for file in /usr/etc/npmrc /etc/npmrc; do
  [ -e "$file" ] || continue
  read_only "$file" /usr/etc/npmrc
  read_only "$file" /etc/npmrc
  break
done
read_only "$home/.npmrc" /root/.npmrc
read_only /etc/pip.conf /etc/pip.conf
read_only "$home/.config/pip" /root/.config/pip
read_only "$home/.cargo/config.toml" /root/.cargo/config.toml
read_only /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
read_only /usr/local/share/ca-certificates /usr/local/share/ca-certificates
read_only "$checkout" /mnt/source
read_only "$checkout/tools/fresh/inside.sh" /mnt/inside.sh

mkdir -p mnt/old
pivot_root . mnt/old
umount -l /mnt/old

# Names of settings that say how packages are reached; nothing else of the caller's environment.
keep=()
while IFS= read -r -d '' pair; do
  case ${pair%%=*} in
    *_proxy | *_PROXY | SSL_CERT_FILE | NODE_EXTRA_CA_CERTS | PIP_CERT | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE | npm_config_registry | npm_config_cafile) keep+=("$pair") ;;
  esac
done < <(env -0)
exec env -i "${keep[@]}" HOME=/root USER=root LANG=C.UTF-8 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash /mnt/inside.sh "$limit"

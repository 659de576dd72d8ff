#!/bin/bash
# Builds the root file system of the machine that `make test-kvm` boots: Debian 13 with QEMU and what Sandlot runs on, no
# kernel, no Node (both come from this host). Called by tools/test-kvm.sh.
#
#   build-kvm-host.sh      prints the path of .cache/images/kvm-host-KEY.ext4
#
# KEY is of this file: a changed recipe is built anew, and what it replaces removed.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
key=$(sha256sum <tools/images/build-kvm-host.sh | cut -c1-12)
out=.cache/images/kvm-host-$key.ext4
mkdir -p .cache/images
exec 9>.cache/images/kvm-host.lock
flock 9
[ ! -s "$out" ] || { echo "$PWD/$out"; exit 0; }

work=$(mktemp -d "${TMPDIR:-/tmp}/sandlot-kvm-host.XXXXXX")
# Not root: mmdebstrap works in a user namespace and must be able to enter the folder.
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
source=$work/debian.$(tools/setup/derive-source.sh trixie --format)
tools/setup/derive-source.sh trixie >"$source"
apt-config dump Acquire | grep -E '^Acquire::(https?::|Check-|Retries)' >"$work/10-as-host" || true

packages=(qemu-system-x86 qemu-utils e2fsprogs libarchive13t64 kmod iproute2 nftables procps mount zstd busybox-static
  ca-certificates)
mmdebstrap --quiet --variant=minbase --format=tar --include="$(IFS=,; echo "${packages[*]}")" \
  --aptopt="$work/10-as-host" --aptopt='APT::Install-Recommends "false"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='force-unsafe-io' \
  --customize-hook='rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/var/log/*.log "$1"/var/log/apt' \
  --customize-hook='mkdir -p "$1"/payload "$1"/lib/modules' \
  trixie "$work/root.tar" "$source" >&2
# Room for what the tests write; a hole until then.
truncate -s 8G "$work/root.ext4"
mke2fs -q -t ext4 -O ^has_journal -E root_owner=0:0 -d - "$work/root.ext4" <"$work/root.tar"
find .cache/images -maxdepth 1 -name 'kvm-host-*.ext4' -delete
cp --sparse=always "$work/root.ext4" "$out.new"
mv "$out.new" "$out"
echo "built $out ($(du -m "$out" | cut -f1) MiB)" >&2
echo "$PWD/$out"

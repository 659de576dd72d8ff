#!/usr/bin/env bash
# Builds what every guest boots from, into one folder: `tools/guest-assets/build.sh OUT`. Called by the
# Makefile and by tests; the VMM driver reads OUT (packages/vmm/src/qemu/assets.ts). Needs no root.
#
#   OUT/vmlinuz               the distribution's cloud kernel, taken from its package, not installed
#   OUT/initramfs.cpio     the guest agent as /init, the modules that lead to virtio, /modules.list
#   OUT/modules.ext4       all other modules with depmod's tables, and the agent named `modprobe`
#   OUT/measure-tsc        host program: rate of the time stamp counter
#   OUT/manifest.json      versions and the sha256 of each file; written last
#
# The same inputs give the same bytes. OUT is complete or absent: it is built beside and renamed.
#   SANDLOT_KERNEL_DEB   kernel package to use; else the newest linux-image-cloud-amd64 apt offers
#   SANDLOT_AGENT        guest agent binary; else the release build in guest-agent/target
#   SANDLOT_CACHE        where a downloaded package is kept; else .cache of the checkout
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

fail() {
  printf 'guest-assets: %s\n' "$*" >&2
  exit 1
}
say() { printf 'guest-assets: %s\n' "$*" >&2; }

# The oldest kernel whose modules, idmapped mounts and virtio drivers the guest agent was tested with.
oldest_kernel=6.12

[ $# -eq 1 ] && [ -n "$1" ] || fail "usage: build.sh OUT"
mkdir -p "$(dirname "$1")"
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
agent=${SANDLOT_AGENT:-$root/guest-agent/target/x86_64-unknown-linux-gnu/release/sandlot-agent}
cache=${SANDLOT_CACHE:-$root/.cache}

# mke2fs and depmod live in sbin, which a plain user's PATH may lack.
PATH=$PATH:/usr/sbin:/sbin
for tool in dpkg-deb depmod mke2fs cpio xz zstd rustc sha256sum flock; do
  command -v "$tool" >/dev/null ||
    fail "'$tool' is missing. Install it (packages dpkg, kmod, e2fsprogs, cpio, xz-utils, zstd, rustc, coreutils, util-linux)."
done
[ -x "$agent" ] ||
  fail "no guest agent at $agent. Build it first (cargo build --release in guest-agent), or set SANDLOT_AGENT."

# One build at a time for one OUT; the second finds the work done.
exec 9>"$out.lock"
flock -w 600 9 || fail "another build of $out has not ended in ten minutes."

sha() { sha256sum "$1" | cut -d' ' -f1; }

# Name and version of the real kernel package behind the metapackage, newest first.
find_kernel_package() {
  local version depends
  version=$(apt-cache madison linux-image-cloud-amd64 | awk '{print $3}' | sort -V | tail -n1)
  [ -n "$version" ] ||
    fail "apt knows no linux-image-cloud-amd64. Run 'apt-get update', or set SANDLOT_KERNEL_DEB to a downloaded kernel package."
  depends=$(apt-cache show "linux-image-cloud-amd64=$version" |
    sed -n 's/^Depends:.*\(linux-image-[^ ,]*\) (= \([^)]*\)).*/\1=\2/p' | head -n1)
  [ -n "$depends" ] || fail "linux-image-cloud-amd64 $version does not depend on a kernel package."
  printf '%s\n' "$depends"
}

kernel_deb() {
  if [ -n "${SANDLOT_KERNEL_DEB:-}" ]; then
    [ -r "$SANDLOT_KERNEL_DEB" ] || fail "SANDLOT_KERNEL_DEB=$SANDLOT_KERNEL_DEB cannot be read."
    realpath "$SANDLOT_KERNEL_DEB"
    return
  fi
  local folder=$cache/kernel package name version file
  mkdir -p "$folder"
  # A package that is here is used until somebody removes it: a build must not depend on the network.
  file=$(find "$folder" -maxdepth 1 -name 'linux-image-[0-9]*.deb' | sort -V | tail -n1)
  if [ -z "$file" ]; then
    package=$(find_kernel_package)
    name=${package%%=*} version=${package#*=}
    local number=${name#linux-image-}
    [ "$(printf '%s\n%s\n' "$oldest_kernel" "$number" | sort -V | head -n1)" = "$oldest_kernel" ] ||
      fail "apt's newest cloud kernel is $version, but $oldest_kernel or newer is needed. On Debian 12 add bookworm-backports and run 'apt-get update', or set SANDLOT_KERNEL_DEB."
    say "downloading $package"
    local download=$folder/.download.$$
    rm -rf "$download" && mkdir "$download"
    (cd "$download" && apt-get download "$package" >&2) ||
      { rm -rf "$download"; fail "apt-get download $package failed; see above."; }
    mv "$download"/*.deb "$folder/" && rmdir "$download"
    file=$(find "$folder" -maxdepth 1 -name 'linux-image-[0-9]*.deb' | sort -V | tail -n1)
  fi
  printf '%s\n' "$file"
}

deb=$(kernel_deb)
# Everything that decides a byte of the result.
inputs=$({
  sha "$deb"
  sha "$agent"
  sha "$here/build.sh"
  sha "$here/measure-tsc.rs"
  mke2fs -V 2>&1
  depmod --version
  rustc --version
} | sha256sum | cut -d' ' -f1)

if [ -f "$out/manifest.json" ] && grep -q "\"inputs\": \"$inputs\"" "$out/manifest.json"; then
  say "up to date ($out)"
  exit 0
fi

# Leftovers of a build that was killed; the lock says that nobody else is at work.
rm -rf "$out.tmp" "$out.old"
trap 'rm -rf "$out.tmp"' EXIT
mkdir "$out.tmp"
new=$out.tmp/new work=$out.tmp/work
mkdir "$new" "$work"

say "unpacking $(basename "$deb")"
dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work" --no-same-owner --wildcards './boot/vmlinuz-*' './lib/modules/*' 2>/dev/null ||
  dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work" --no-same-owner --wildcards './boot/vmlinuz-*' './usr/lib/modules/*'
[ -d "$work/lib" ] || mv "$work/usr/lib" "$work/lib"
vmlinuz=$(find "$work/boot" -name 'vmlinuz-*' | head -n1)
[ -n "$vmlinuz" ] || fail "$deb holds no boot/vmlinuz-*: not a kernel package."
version=${vmlinuz##*/vmlinuz-}
modules=$work/lib/modules/$version
[ -d "$modules" ] || fail "$deb holds no modules for $version."

# As packaged, not unpacked: QEMU's loaders put the initramfs at the highest address allowed, and on microvm
# that may be over the ACPI tables at the top of memory (seen: with an unpacked vmlinux, and with this one at
# 2 GiB; the kernel then loops at "ACPI: Core revision"). The header's initrd_addr_max keeps it below:
# https://docs.kernel.org/arch/x86/boot.html, offset 0x22c.
kernel=vmlinuz
cp "$vmlinuz" "$new/vmlinuz"
chmod u+w "$new/vmlinuz"
printf '\377\377\377\067' | dd of="$new/vmlinuz" bs=1 seek=$((0x22c)) conv=notrunc status=none

# What stands between the kernel and the virtio devices, dependencies first. The console (ports) and
# ext4 are built in; if a later kernel makes them modules they must be added here.
for builtin in virtio_console ext4 virtio_ring; do
  grep -q "/$builtin\.ko$" "$modules/modules.builtin" ||
    fail "kernel $version has $builtin not built in; add it to boot_modules in build.sh."
done
boot_modules=(virtio_mmio virtio-rng virtio_blk failover net_failover virtio_net)

say "making initramfs.cpio"
init=$work/init
mkdir -p "$init"/{dev,proc,sys,mnt,modules}
cp "$agent" "$init/init"
chmod 0755 "$init/init"
for name in "${boot_modules[@]}"; do
  grep -q "/$name\.ko$" "$modules/modules.builtin" && continue
  source=$(find "$modules/kernel" -name "$name.ko" -o -name "$name.ko.xz" -o -name "$name.ko.zst" | head -n1)
  # Unpacked, because unpacking xz in an emulated guest costs a second of every boot.
  case $source in
    *.ko.xz) xz -dc "$source" >"$init/modules/$name.ko" ;;
    *.ko.zst) zstd -qdc "$source" >"$init/modules/$name.ko" ;;
    *.ko) cp "$source" "$init/modules/$name.ko" ;;
    *) fail "kernel $version has no module $name." ;;
  esac
  printf '/modules/%s.ko\n' "$name" >>"$init/modules.list"
done
find "$init" -exec touch -h -d @0 {} +
(cd "$init" && find . -mindepth 1 -printf '%P\n' | sort |
  cpio --quiet --reproducible -o -H newc -R 0:0) >"$new/initramfs.cpio"

say "making modules.ext4"
depmod -b "$work" "$version"
# An index of links into the build tree, meaningless in a guest.
rm -f "$modules/build" "$modules/source"
cp "$agent" "$modules/modprobe"
chmod 0755 "$modules/modprobe"
find "$modules" -exec touch -h -d @0 {} +
used_kib=$(du -sk --apparent-size "$modules" | cut -f1)
entries=$(find "$modules" | wc -l)
# Room for the rounding of each file to a block and for the inode tables.
size_kib=$((used_kib + entries * 5 + 2048))
truncate -s "$((size_kib / 1024 + 1))M" "$new/modules.ext4"
tar -c -C "$modules" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=posix \
  --pax-option=exthdr.name=%d/%f,delete=atime,delete=ctime . |
  SOURCE_DATE_EPOCH=0 mke2fs -q -t ext4 -b 4096 -m 0 -N "$((entries + 64))" \
    -O '^has_journal,^resize_inode' -U 5a4d1075-0000-4000-8000-6d6f64756c65 \
    -E 'hash_seed=5a4d1075-0000-4000-8000-6d6f64756c66,lazy_itable_init=0,root_owner=0:0' \
    -L sandlot-modules -d - "$new/modules.ext4"

rustc --edition 2021 -C opt-level=2 -C strip=symbols -C panic=abort -C target-feature=+crt-static \
  -o "$new/measure-tsc" "$here/measure-tsc.rs"

agent_version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/guest-agent/Cargo.toml" | head -n1)
{
  printf '{\n  "inputs": "%s",\n' "$inputs"
  printf '  "kernelVersion": "%s",\n  "agentVersion": "%s",\n  "kernel": "%s",\n' "$version" "${agent_version:-unknown}" "$kernel"
  printf '  "agentSha256": "%s",\n  "files": {\n' "$(sha "$agent")"
  first=
  for file in initramfs.cpio measure-tsc modules.ext4 "$kernel"; do
    printf '%s    "%s": "%s"' "$first" "$file" "$(sha "$new/$file")"
    first=$',\n'
  done
  printf '\n  }\n}\n'
} >"$new/manifest.json"
chmod 0444 "$new"/{initramfs.cpio,modules.ext4,"$kernel",manifest.json}
chmod 0555 "$new/measure-tsc"

if [ -e "$out" ]; then mv "$out" "$out.old"; fi
mv "$new" "$out"
rm -rf "$out.old"
say "built $out (kernel $version)"

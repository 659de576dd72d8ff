#!/bin/bash
# Set-up step 1: Debian packages. Installs what is missing as root; says what is missing otherwise.
# `packages.sh --test` adds what only the tests and benchmarks use. Debian 13 has everything in its own
# release; on Debian 12 QEMU, e2fsprogs and the guest's kernel come from backports, pinned to just these.
set -euo pipefail
. "$(dirname "$0")/say.sh"
PATH=$PATH:/usr/sbin:/sbin
. /etc/os-release

# What the product runs on, what builds it, and what builds the stand-in image.
needed=(qemu-system-x86 qemu-utils e2fsprogs nftables iproute2 kmod procps util-linux mount zstd xz-utils cpio
  passwd ca-certificates git make build-essential python3 mmdebstrap)
# umoci and skopeo: the differential tests of images. protobuf-compiler: the check for drift of the
# generated code. busybox-static, musl-tools: small images. attr: xattrs in fidelity tests.
if [ "${1:-}" = --test ]; then
  needed+=(umoci skopeo protobuf-compiler busybox-static musl-tools attr)
  # Prime's clients run in virtual environments; Debian's Python makes them with a package of their own.
  python3 -c 'import ensurepip' 2>/dev/null || needed+=(python3-venv)
fi

release=${VERSION_ID:-0}
if [ "${ID:-}" != debian ] || { [ "$release" != 12 ] && [ "$release" != 13 ]; }; then
  say "this is ${PRETTY_NAME:-an unknown system}, not Debian 12 or 13: install these yourself (names are Debian's):"
  say "  ${needed[*]} nodejs (20 or newer) npm cargo (1.85 or newer) linux-image-cloud-amd64 (only downloaded)"
  exit 0
fi
# mke2fs reads tar streams through this library, which it loads by itself and only recommends.
if [ "$release" = 13 ]; then needed+=(libarchive13t64); else needed+=(libarchive13); fi
# Rust and Node of Debian 13 are new enough; those of Debian 12 are not: toolchain.sh tells.
if [ "$release" = 13 ]; then
  command -v node >/dev/null || needed+=(nodejs libnode-dev)
  command -v npm >/dev/null || needed+=(npm)
  [ -e /usr/include/node/node.h ] || [ "$(command -v node)" != /usr/bin/node ] || needed+=(libnode-dev)
  command -v cargo >/dev/null || needed+=(cargo rustc)
  if [ "${1:-}" = --test ] && [ "$(command -v cargo || echo /usr/bin/cargo)" = /usr/bin/cargo ]; then needed+=(rustfmt rust-clippy); fi
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' | awk '$1 == "installed" {print $2, $3}')
version_of() { awk -v name="$1" '$1 == name {print $2; exit}' <<<"$installed"; }
missing=()
for name in "${needed[@]}"; do
  [ -n "$(version_of "$name")" ] || missing+=("$name")
done
# Oldest versions that the product was built on; only Debian 12 can have older ones.
for pair in qemu-system-x86=1:9.2 qemu-utils=1:9.2 e2fsprogs=1.47.1; do
  name=${pair%%=*} have=$(version_of "${pair%%=*}")
  if [ -n "$have" ] && dpkg --compare-versions "$have" lt "${pair#*=}"; then missing+=("$name"); fi
done
# The guest's kernel is only downloaded (tools/guest-assets), so apt must know it: on 12 by backports.
source_missing=
if [ "$release" = 12 ] && ! compgen -G '/var/lib/apt/lists/*bookworm-backports*Packages*' >/dev/null &&
  ! compgen -G "$root/.cache/kernel/linux-image-*.deb" >/dev/null; then source_missing=1; fi

if [ ${#missing[@]} = 0 ] && [ -z "$source_missing" ]; then
  say "all ${#needed[@]} packages are here"
  exit 0
fi
if ! is_root; then
  say "missing: ${missing[*]:-the package list of bookworm-backports}"
  stop "installing packages needs root. As root run: tools/setup/packages.sh ${1:-}  (then go on as this user)"
fi

export DEBIAN_FRONTEND=noninteractive
updated=
update() { [ -n "$updated" ] || { say "reading package lists"; logged apt-get update; updated=1; }; }

# Backports for Debian 12: the machine's own mirror, keys and options, another suite.
if [ "$release" = 12 ]; then
  wanted=$(tools/setup/derive-source.sh bookworm-backports)
  file=/etc/apt/sources.list.d/sandlot-backports.$(tools/setup/derive-source.sh bookworm-backports --format)
  if ! grep -rqs bookworm-backports /etc/apt/sources.list /etc/apt/sources.list.d/; then
    say "adding bookworm-backports of this machine's mirror ($file)"
    printf '%s\n' "$wanted" >"$file"
    update
  fi
  pin=/etc/apt/preferences.d/sandlot-backports
  # Only these come from backports; everything else of Debian 12 stays as it is.
  new_pin='Package: qemu* seabios* ipxe-qemu* e2fsprogs* libext2fs* libcom-err2 libss2 logsave linux-image-*cloud-amd64*
Pin: release n=bookworm-backports
Pin-Priority: 990'
  if [ "$(cat "$pin" 2>/dev/null)" != "$new_pin" ]; then
    say "pinning QEMU, e2fsprogs and the cloud kernel to backports ($pin)"
    printf '%s\n' "$new_pin" >"$pin"
  fi
  [ -z "$source_missing" ] || update
fi

if [ ${#missing[@]} -gt 0 ]; then
  say "installing: ${missing[*]}"
  # An empty or old package list shows as a package without candidate, or as a failed download.
  install=(apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "${missing[@]}")
  compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null || update
  if ! "${install[@]}" >>"$logs/$step.log" 2>&1 </dev/null; then
    [ -z "$updated" ] || logged "${install[@]}"
    update
    logged "${install[@]}"
  fi
fi
say "installed"

#!/bin/bash
# `make fidelity`: runs the probes of tests/fidelity in a plain Debian VM, Sandlot sandboxes without and with init, runc and
# gVisor, writes docs/fidelity.md, and ends with `N probes, M explained, 0 unexplained`. Needs root. The server is one of its own (port
# 7178, data in .cache/fidelity, kept for the next run).
#
#   tools/fidelity.sh [--only id,id] [--places plain,sandlot,sandlot-init,runc,gvisor [--page]]    for whoever mends a difference
set -uo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "make fidelity needs root: it mounts images and runs containers" >&2; exit 1; }
tools/setup/all.sh --test >&2 || exit 1

# What only this table needs. Without them it is made all the same, with a column or a probe less.
missing=()
for pair in runc=runc musl-gcc=musl-tools; do
  command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
done
if [ ${#missing[@]} -gt 0 ]; then
  apt-get install -y --no-install-recommends "${missing[@]}" >.cache/log/fidelity-packages.log 2>&1 </dev/null ||
    echo "could not install ${missing[*]} (.cache/log/fidelity-packages.log)" >&2
fi

key=$(tools/images/build-debian-vm.sh --key) || exit 1
layer=.cache/images/debian-vm-$key.layer.tar archive=.cache/images/debian-vm-$key.tar
if [ ! -s "$layer" ] || [ ! -s "$archive" ]; then
  echo "[fidelity] building the image from Debian's packages (some minutes, once)" >&2
  tools/images/build-debian-vm.sh "$layer" "$archive" >.cache/log/fidelity-image.log 2>&1 </dev/null ||
    { tail -n 30 .cache/log/fidelity-image.log >&2; exit 1; }
fi

folder=$PWD/.cache/fidelity
mkdir -p "$folder"
npx --no-install tsc -p tests/fidelity || exit 1
export XDG_CONFIG_HOME=$folder/config SANDLOT_DATA=$folder/data SANDLOT_URL=http://127.0.0.1:7178
trap './bin/sandlot down >&2' EXIT
./bin/sandlot up --detach --listen 127.0.0.1:7178 --guest-assets "$PWD/.cache/guest" --prebuild none --kvm never >&2 || exit 1
node --enable-source-maps .cache/fidelity/js/main.js "$PWD" "$PWD/$layer" "$PWD/$archive" "$key" "$@"

#!/bin/bash
# `make bench G=linux`: a Debian with systemd and Docker in a sandbox, beside a plain VM of the same image. Needs root. The
# server is one of its own (data in .cache/bench-linux, kept for the next run) in a network namespace of its own; the plain VM's
# network is another. Both namespaces, all processes in them and the folder of the run are removed at the end.
set -uo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "make bench G=linux needs root: it makes network namespaces" >&2; exit 1; }
tools/setup/all.sh --test >&2 || exit 1
if ! command -v iperf3 >/dev/null; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends iperf3 >.cache/log/bench-linux-packages.log 2>&1 </dev/null ||
    { echo "could not install iperf3 (.cache/log/bench-linux-packages.log)" >&2; exit 1; }
fi

more=docker.io,apparmor,fio,iperf3,busybox-static
key=$(tools/images/build-debian-vm.sh --more $more --key) || exit 1
layer=.cache/images/debian-vm-$key.layer.tar archive=.cache/images/debian-vm-$key.tar
if [ ! -s "$layer" ] || [ ! -s "$archive" ]; then
  echo "building the image from Debian's packages (some minutes, once)" >&2
  tools/images/build-debian-vm.sh --more $more "$layer" "$archive" >.cache/log/bench-linux-image.log 2>&1 </dev/null ||
    { tail -n 30 .cache/log/bench-linux-image.log >&2; exit 1; }
fi
# The plain VM is that of `make fidelity`.
npx --no-install tsc -p tests/fidelity || exit 1

folder=$PWD/.cache/bench-linux
mkdir -p "$folder"
work=$(mktemp -d "$folder/run.XXXXXX")
host=slb-$$ plain=slb-$$-p
export XDG_CONFIG_HOME=$folder/config SANDLOT_DATA=$folder/data SANDLOT_URL=http://127.0.0.1:7177
in_host() { nsenter --net="/run/netns/$host" -- "$@"; }
end() {
  [ ! -e "/run/netns/$host" ] || in_host ./bin/sandlot down >&2
  for space in "$host" "$plain"; do
    [ -e "/run/netns/$space" ] || continue
    ip netns pids "$space" | xargs -r kill -9
    ip netns delete "$space"
  done
  rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM
for space in "$host" "$plain"; do
  ip netns add "$space" && ip -n "$space" link set lo up || exit 1
done
in_host ./bin/sandlot up --detach --listen 127.0.0.1:7177 --guest-assets "$PWD/.cache/guest" --prebuild none \
  --pool-size 1 --cpu-overcommit 8 --disk-overcommit 100 --allow-host-port 5201 >&2 || exit 1
# The server's address for its sandboxes is the one that it has put on the loopback.
address=$(ip -n "$host" -o -4 address show dev lo | awk '$4 !~ /^127/ { sub("/.*", "", $4); print $4; exit }')
[ -n "$address" ] || { echo "the server has put no address on the loopback of $host" >&2; exit 1; }
SANDLOT_BENCH_LINUX=$(printf '{"layer":"%s","archive":"%s","key":"%s","folder":"%s","cache":"%s","plainNamespace":"%s","hostNamespace":"%s","hostAddress":"%s"}' \
  "$PWD/$layer" "$PWD/$archive" "$key" "$work" "$folder" "$plain" "$host" "$address")
export SANDLOT_BENCH_LINUX
# Beside us, so that a signal ends all of it at once.
in_host node --experimental-websocket --no-warnings tests/bench/run.mjs linux &
wait $!

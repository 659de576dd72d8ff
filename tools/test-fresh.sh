#!/bin/bash
# `make test-fresh`: the README's command in a Debian 13 that has only make, git and certificates. Needs
# root and mmdebstrap. Makes a root, namespaces and a network of its own, clones HEAD into it, runs
# `make run` (at most ten minutes beyond package downloads), `make run` again, `make stop`, and looks that
# nothing is left. Takes the host's apt, npm, pip and cargo configuration and certificates read-only.
#
#   MAKE_RUN_LIMIT=600   seconds that the first `make run` may take, without package downloads
set -euo pipefail
cd "$(dirname "$0")/.."
limit=${MAKE_RUN_LIMIT:-600}
checkout=$PWD
[ "$(id -u)" = 0 ] || { echo "test-fresh needs root: it makes namespaces, device nodes and mounts" >&2; exit 1; }
command -v mmdebstrap >/dev/null || tools/setup/packages.sh
mkdir -p .cache/log .cache/fresh
tools/leftovers.sh >.cache/log/leftovers.fresh

name=slfresh$$
work=$(mktemp -d "${TMPDIR:-/tmp}/sandlot-fresh.XXXXXX")
root=$work/root
forwarding=$(cat /proc/sys/net/ipv4/ip_forward)
inside=

# Undone in reverse order; each is safe if its doing never happened.
clean_up() {
  status=$?
  trap - EXIT INT TERM
  # The end of a pid namespace's first process is the end of all in it.
  [ -z "$inside" ] || { kill -KILL "$inside" 2>/dev/null; wait "$inside" 2>/dev/null; } || true
  nft delete table ip "$name" 2>/dev/null || true
  ip link delete "$name" 2>/dev/null || true
  ip netns delete "$name" 2>/dev/null || true
  echo "$forwarding" >/proc/sys/net/ipv4/ip_forward
  rm -rf --one-file-system "$work"
  if ! tools/leftovers.sh --since .cache/log/leftovers.fresh; then
    echo "left on the host: see above"
    status=1
  fi
  exit $status
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# 1. The root. Kept, because only its packages' versions can change.
base=.cache/fresh/trixie.tar
if [ ! -s "$base" ]; then
  echo "making a Debian 13 root"
  tools/setup/derive-source.sh trixie >"$work/debian.$(tools/setup/derive-source.sh trixie --format)"
  apt-config dump Acquire | { grep -E '^Acquire::(https?::|Check-|Retries)' || true; } >"$work/10-as-host"
  mmdebstrap --quiet --format=tar --variant=minbase --include=make,git,ca-certificates --aptopt="$work/10-as-host" \
    --customize-hook='mv "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/apt/apt.conf.d/10-as-host' \
    trixie "$base.new" "$work"/debian.*
  mv "$base.new" "$base"
fi
mkdir "$root"
tar -xf "$base" -C "$root" --exclude='./dev/*'
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
echo fresh >"$root/etc/hostname"

# 2. The network: a namespace, a veth pair, NAT. 10.254.0.0/30 is not a range that the product uses.
ip netns add "$name"
ip link add "$name" type veth peer name eth0 netns "$name"
ip addr add 10.254.254.1/30 dev "$name"
ip link set "$name" up
ip -n "$name" addr add 10.254.254.2/30 dev eth0
ip -n "$name" link set lo up
ip -n "$name" link set eth0 up
ip -n "$name" route add default via 10.254.254.1
echo 1 >/proc/sys/net/ipv4/ip_forward
nft -f - <<NFT
table ip $name {
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr 10.254.254.2 masquerade
  }
}
NFT

# 3. Inside: own mount, pid and uts namespaces. fresh/enter.sh mounts and changes root, fresh/inside.sh is
# what a user does.
echo "make run in a fresh Debian 13 (limit $limit s)"
unshare --mount --pid --uts --fork --kill-child --propagation private -- \
  nsenter --net="/run/netns/$name" -- tools/fresh/enter.sh "$root" "$checkout" "$limit" </dev/null &
inside=$!
wait "$inside" && result=0 || result=$?
inside=
[ "$result" = 0 ] || { echo "test-fresh failed ($result)"; exit 1; }
left=$(tools/leftovers.sh --since .cache/log/leftovers.fresh | grep -v " $name\$" || true)
[ -z "$left" ] || { echo "left on the host after make stop:"; echo "$left"; exit 1; }
cat "$root/root/result"

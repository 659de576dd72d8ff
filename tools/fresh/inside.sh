#!/bin/bash
# Third part of test-fresh.sh, in the fresh root: what a user does, timed. Writes /root/result.
# `inside.sh LIMIT`: seconds for the first `make run`, without package downloads.
set -euo pipefail
limit=$1
fail() { echo "test-fresh: $*"; exit 1; }
# The clone is of a folder that somebody else may own.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

cd /root
git clone -q file:///mnt/source sandlot
cd sandlot
echo "commit $(git rev-parse --short HEAD)"

begin=$SECONDS
# Downloads may double the time; what does not end then is stuck.
timeout --foreground $((2 * limit)) make run || fail "make run failed or took more than $((2 * limit)) s"
first=$((SECONDS - begin))
# apt says how long each download took: "Fetched 123 MB in 45s (2,700 kB/s)", or "in 1min 5s".
downloads=$(sed -nE 's/^Fetched .* in ([0-9hmins ]+) .*/\1/p' .cache/log/*.log |
  awk '{ for (i = 1; i <= NF; i++) { n = $i + 0; if ($i ~ /h$/) n *= 3600; else if ($i ~ /min$/) n *= 60; t += n } } END { print t + 0 }')
[ $((first - downloads)) -le "$limit" ] || fail "make run took $first s ($downloads s of it package downloads), more than $limit s"

begin=$SECONDS
make run >/tmp/second.log 2>&1 || { tail -n 40 /tmp/second.log; fail "the second make run failed"; }
second=$((SECONDS - begin))
[ "$second" -le 60 ] || fail "the second make run took $second s"

make stop || fail "make stop failed"
sleep 1
left=$(ps -eo pid=,args= | grep -E '[q]emu-system|packages/(node-agent|control-plane)/dist' || true)
[ -z "$left" ] || fail "processes are left after make stop: $left"
[ -z "$(ip netns list)" ] || fail "network namespaces are left after make stop: $(ip netns list)"
left=$(grep -E '/dev/loop|/var/lib/sandlot' /proc/mounts || true)
[ -z "$left" ] || fail "mounts are left after make stop: $left"
left=$(nft list tables)
[ -z "$left" ] || fail "nft tables are left after make stop: $left"
echo "make run $first s ($downloads s of it apt downloads), again $second s; make stop leaves nothing" >/root/result

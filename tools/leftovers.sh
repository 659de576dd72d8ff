#!/bin/bash
# Lists, one a line, what our machines and tests can leave on a host: QEMU processes, our daemons,
# network namespaces, taps and veths, loop mounts and loop devices. Called before and after by test.sh,
# .ci/run and test-fresh.sh: `leftovers.sh` prints, `leftovers.sh --since FILE` prints what is new since
# FILE was written and exits 1 if there is any.
set -uo pipefail

list() {
  # Interpreter and script are looked at, not whole command lines: an editor with our file open is no leak.
  ps -eo pid=,args= | awk '
    $2 ~ /(^|\/)qemu-system-/ { print "process", $1, $2 }
    $2 ~ /(^|\/)node$/ && / [^ ]*packages\/(node-agent|control-plane)\/dist\// { print "process", $1, $3 }'
  ip netns list 2>/dev/null | awk '{print "netns", $1}'
  ip -o link show 2>/dev/null | awk -F': ' '$2 ~ /^(sl|tap)/ {sub(/@.*/, "", $2); print "link", $2}'
  awk '$1 ~ /^\/dev\/loop/ || $2 ~ /sandlot/ {print "mount", $2}' /proc/mounts
  losetup -n -O NAME,BACK-FILE 2>/dev/null | awk '{print "loop", $1, $2}'
  nft list tables 2>/dev/null | awk '$3 ~ /^(sl|sandlot)/ {print "nft", $2, $3}'
}

if [ "${1:-}" != --since ]; then
  list | sort -u
  exit 0
fi
# Processes that were told to end may need a moment.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  new=$(comm -13 "$2" <(list | sort -u))
  [ -n "$new" ] || exit 0
  sleep 0.5
done
printf '%s\n' "$new"
exit 1

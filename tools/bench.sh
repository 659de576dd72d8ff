#!/bin/bash
# `make bench [G=group]`: the figures of SPECIFICATION.md, on a server of its own (port 7177, data in
# .cache/bench, kept for the next run) that offers more CPU than a real one: 50 idle machines on 2 cores
# are more than the default allows. Quiet host wanted: every figure is beside its bare one, but noise moves both.
set -uo pipefail
cd "$(dirname "$0")/.."
# Group linux alone needs root, an image of its own and namespaces.
[ "${1:-}" != linux ] || exec tools/bench-linux.sh
tools/setup/all.sh --test || exit 1

folder=$PWD/.cache/bench
mkdir -p "$folder"
export XDG_CONFIG_HOME=$folder/config SANDLOT_DATA=$folder/data SANDLOT_URL=http://127.0.0.1:7177
trap './bin/sandlot down >&2' EXIT
./bin/sandlot up --detach --listen 127.0.0.1:7177 --guest-assets "$PWD/.cache/guest" \
  --cpu-overcommit 64 --memory-overcommit 16 --disk-overcommit 100 >&2 || exit 1
./bin/sandlot image inspect python:3.11-slim >/dev/null 2>&1 ||
  ./bin/sandlot image import .cache/images/python-3.11-slim.tar python:3.11-slim >&2 || exit 1
# The flag: group churn talks to the inspectors of our daemons.
node --experimental-websocket --no-warnings tests/bench/run.mjs ${1:+"$1"}

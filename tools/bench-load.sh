#!/bin/bash
# `make bench-load`: 1,024 sandboxes with guests that are processes (the fake driver) on a server of its own (port 7178, data in
# .cache/bench-load, kept for the next run); prints the figures of SPECIFICATION.md's "Load". At most 8 minutes on a quiet host.
# Arguments go to tests/bench/load/main.mjs. Needs root, as the fake driver does to end what a guest has started.
set -uo pipefail
cd "$(dirname "$0")/.."
tools/setup/all.sh --test || exit 1

listen=${SANDLOT_BENCH_LISTEN:-127.0.0.1:7178}
folder=$PWD/.cache/bench-load
agent=$PWD/guest-agent/target/x86_64-unknown-linux-gnu/release/sandlot-agent
mkdir -p "$folder"
export XDG_CONFIG_HOME=$folder/config SANDLOT_DATA=$folder/data SANDLOT_URL=http://$listen
trap './bin/sandlot down >&2' EXIT
# Room for 64 sandboxes more than the load keeps: its creates and deletes go on beside them.
cores=$(nproc)
./bin/sandlot up --detach --listen "$listen" --driver fake --agent-binary "$agent" --prebuild 1x256 \
  --cpu-overcommit $(((1088 + cores - 1) / cores)) --memory-overcommit 1000 --disk-overcommit 1000 >&2 || exit 1
./bin/sandlot image inspect python:3.11-slim >/dev/null 2>&1 ||
  ./bin/sandlot image import .cache/images/python-3.11-slim.tar python:3.11-slim >&2 || exit 1
node --experimental-websocket --no-warnings tests/bench/load/main.mjs "$@"

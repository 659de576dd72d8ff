#!/bin/bash
# `make bench [G=group]`: the figures of SPECIFICATION.md. Uses the server that runs here, or starts one for
# the time of the run. Quiet host wanted: every figure is beside its bare one, but noise moves both.
set -uo pipefail
cd "$(dirname "$0")/.."
tools/setup/all.sh --test || exit 1
started=
./bin/sandlot status >/dev/null 2>&1 || started=1
./bin/sandlot up --detach --if-stale --guest-assets "$PWD/.cache/guest" || exit 1
./bin/sandlot image inspect python:3.11-slim >/dev/null 2>&1 ||
  ./bin/sandlot image import .cache/images/python-3.11-slim.tar python:3.11-slim || exit 1
node tests/bench/run.mjs ${1:+"$1"}
status=$?
[ -z "$started" ] || ./bin/sandlot down
exit $status

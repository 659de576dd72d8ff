#!/bin/bash
# `make run`: set up, start the server in the background (or renew it when it is older than the build),
# play the demo. A second run takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
image=
# The stand-in is built beside the other steps only where it may be wanted.
[ "${IMAGE:-python:3.11-slim}" != python:3.11-slim ] || ./bin/sandlot image inspect python:3.11-slim >/dev/null 2>&1 || image=--image
tools/setup/all.sh $image
printf '%-9s %s\n' '[server]' 'starting, or renewing one that is older than this build'
./bin/sandlot up --detach --if-stale --guest-assets "$PWD/.cache/guest"
tools/setup/demo.sh
printf '\n(%d s)\n' $((SECONDS - started))

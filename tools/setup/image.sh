#!/bin/bash
# Set-up step 7: the stand-in for python:3.11-slim, from Debian's packages. Kept in .cache/images.
set -euo pipefail
. "$(dirname "$0")/say.sh"
out=.cache/images/python-3.11-slim.tar
if [ -s "$out" ]; then
  say "stand-in image is here ($out)"
  exit 0
fi
say "building a Python image from Debian's packages (about a minute)"
logged tools/images/build-python.sh "$out"
say "$(tail -n 1 "$logs/$step.log")"

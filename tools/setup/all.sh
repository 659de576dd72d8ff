#!/bin/bash
# The set-up from a bare checkout to something that can be started: every step in order, independent
# ones side by side. Called by `make build`, `make run` (with --image) and `make test` (with --test).
#
#   --test    also what only tests use, and the stand-in image (tests need a real image)
#   --image   also the stand-in for python:3.11-slim, unless Docker Hub answers
#
# Every step is idempotent; with nothing to do all of them take a few seconds.
set -uo pipefail
. "$(dirname "$0")/say.sh"
test_packages= image=
for argument in "$@"; do
  case $argument in
    --test) test_packages=--test image=always ;;
    --image) image=unless-hub ;;
    *) stop "unknown argument $argument" ;;
  esac
done

# One at a time in a checkout; what a set-up that was ended has left at work is waited for as well.
mkdir -p .cache
exec 9>.cache/setup.lock
flock -n 9 || { say 'waiting for another set-up of this checkout …'; flock 9; }

here=tools/setup
$here/packages.sh $test_packages || exit 1
$here/toolchain.sh || exit 1

# Three strands: TypeScript; Rust and then the guest's files, which hold the agent; the image.
($here/modules.sh && $here/compile.sh) & typescript=$!
($here/agent.sh && $here/guest.sh) & guest=$!
(
  case $image in
    always) $here/image.sh ;;
    unless-hub) node $here/hub-answers.mjs || $here/image.sh ;;
  esac
) & stand_in=$!

failed=
wait $typescript || failed="$failed TypeScript"
wait $guest || failed="$failed guest"
wait $stand_in || failed="$failed image"
[ -z "$failed" ] || stop "could not set up:$failed (see above)"

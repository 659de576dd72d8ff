#!/bin/bash
# Set-up step 4: the guest agent. cargo itself finds out whether sources changed; the check here only
# saves its start and its look at the registry.
set -euo pipefail
. "$(dirname "$0")/say.sh"

binary=guest-agent/target/x86_64-unknown-linux-gnu/release/sandlot-agent
if [ -x "$binary" ] && [ -z "$(find guest-agent -path guest-agent/target -prune -o -type f -newer "$binary" -print -quit)" ]; then
  say "guest agent is up to date"
  exit 0
fi
say "building the guest agent (Rust, release)"
# A source that is saved while cargo runs must count as newer than the binary.
begun=$root/.cache/agent-build-begun
touch "$begun"
cd guest-agent
logged cargo build --release --locked
cd "$root"
# cargo leaves the file alone when a change does not reach it: note when we looked.
touch -r "$begun" "$binary"
say "built $binary ($(($(stat -c %s "$binary") / 1024)) KiB)"

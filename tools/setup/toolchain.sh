#!/bin/bash
# Set-up step 2: are Node, npm and Rust here and new enough? Installs nothing: on Debian 13 packages.sh
# did; on Debian 12 they come from elsewhere, so this says what to install.
set -euo pipefail
. "$(dirname "$0")/say.sh"
. /etc/os-release

# at_least HAVE WANTED: version order.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
advice="On Debian ${VERSION_ID:-12} its own package is too old or absent"

node=$(node --version 2>/dev/null | tr -d v || true)
[ -n "$node" ] || stop "Node.js is missing. $advice: install Node 20 or newer (a package of nodejs.org or NodeSource), then run make again."
at_least "$node" 20 || stop "Node.js $node is too old, 20 is needed. $advice: install Node 20 or newer, then run make again."
command -v npm >/dev/null || stop "npm is missing beside Node $node. Install it, then run make again."
cargo=$(cargo --version 2>/dev/null | awk '{print $2}' || true)
[ -n "$cargo" ] || stop "Rust is missing. $advice: install Rust 1.85 or newer (rustup), then run make again."
at_least "$cargo" 1.85 || stop "cargo $cargo is too old, 1.85 is needed. $advice: install Rust 1.85 or newer (rustup), then run make again."

# Native modules are compiled against the headers of the Node that runs them, never downloaded.
headers=$(node -p 'require("node:path").dirname(require("node:path").dirname(process.execPath))')
[ -e "$headers/include/node/node.h" ] ||
  stop "the headers of Node are missing ($headers/include/node). With Debian's Node install libnode-dev; other Nodes bring them along."
say "node $node, cargo $cargo"

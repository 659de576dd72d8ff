#!/bin/bash
# `make stop`: ends sandboxes and server. Fine when nothing was built or nothing runs.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e node_modules ] || [ ! -e packages/cli/dist ]; then
  echo "nothing to stop: this checkout was never built"
  exit 0
fi
./bin/sandlot down

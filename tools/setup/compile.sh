#!/bin/bash
# Set-up step 5: TypeScript. `tsc -b` compiles only what changed.
set -euo pipefail
. "$(dirname "$0")/say.sh"
: >"$logs/$step.log"
say "compiling TypeScript"
logged npx --no-install tsc -b
say "compiled"

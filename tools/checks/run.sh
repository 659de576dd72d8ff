#!/bin/bash
# The checks of the house alone (`make lint`); `make test` runs the same files with all other tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec npx --no-install vitest run --project parts tools/checks

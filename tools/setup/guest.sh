#!/bin/bash
# Set-up step 6: what a guest boots from (kernel, initramfs, modules disk). tools/guest-assets/build.sh
# does it and skips it when nothing changed.
set -euo pipefail
. "$(dirname "$0")/say.sh"
say "guest kernel, initramfs and modules disk"
: >"$logs/$step.log"
logged tools/guest-assets/build.sh "$root/.cache/guest"
say "$(tail -n 1 "$logs/$step.log")"

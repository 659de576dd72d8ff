#!/bin/bash
# Builds a root file system tar of Debian packages (bookworm on any host), for tests that need real software.
# Nothing in it is prepared by us: what the packages' own scripts leave is what is in it. Called by
# tests/driver/debian-image.ts.
#
#   build-debian.sh NAME PACKAGE…      prints the path of .cache/images/debian-NAME-KEY.tar
#
# KEY is of this file and the packages' names: a changed recipe is built anew, and what it replaces removed.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${1:?usage: build-debian.sh NAME PACKAGE…}
shift
key=$({ cat tools/images/build-debian.sh; echo "$@"; } | sha256sum | cut -c1-12)
out=.cache/images/debian-$name-$key.tar
mkdir -p .cache/images
exec 9>".cache/images/debian-$name.lock"
flock 9
[ ! -s "$out" ] || { echo "$PWD/$out"; exit 0; }
command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }

work=$(mktemp -d "${TMPDIR:-/tmp}/sandlot-debian.XXXXXX")
# Not root: mmdebstrap works in a user namespace and must be able to enter the folder.
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT

# The image reaches Debian in the way this machine does: its mirror and its proxy.
source=$work/debian.$(tools/setup/derive-source.sh bookworm --format)
tools/setup/derive-source.sh bookworm >"$source"
apt-config dump Acquire | grep -E '^Acquire::(https?::|Check-|Retries)' >"$work/10-as-host" || true

# Documentation is left out: thousands of small files that an emulated machine would unpack.
mmdebstrap --quiet --variant=minbase --format=tar --include="$(IFS=,; echo "$*")" \
  --aptopt="$work/10-as-host" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='force-unsafe-io' \
  --customize-hook='rm -rf "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/*' \
  bookworm "$work/root.tar" "$source" >&2
find .cache/images -maxdepth 1 -name "debian-$name-*.tar" -delete
mv "$work/root.tar" "$out"
echo "$PWD/$out"

#!/bin/bash
# Builds the stand-in for Docker Hub's python:3.11-slim from Debian's packages (bookworm suite on any
# host), as a docker-archive that `sandlot image import` takes. Called by tools/setup/image.sh when
# Docker Hub cannot be reached, and by tests that need a real image.
#
#   build-python.sh [OUT.tar]       default .cache/images/python-3.11-slim.tar; does nothing if it is there
#
# The same packages give the same bytes: times come from SOURCE_DATE_EPOCH, names are sorted. The
# label org.sandlot.stand-in says what it is; `sandlot image inspect` shows it.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-.cache/images/python-3.11-slim.tar}
[ ! -s "$out" ] || { echo "$out is there already"; exit 0; }
command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }

# Any fixed date does; this is the day of Debian 12.0.
export SOURCE_DATE_EPOCH=1686355200
mkdir -p "$(dirname "$out")"
work=$(mktemp -d "${TMPDIR:-/tmp}/sandlot-python.XXXXXX")
# Not root: mmdebstrap works in a user namespace and must be able to enter the folder.
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT

# The image reaches Debian in the way this machine does: its mirror, its proxy, its own authorities.
tools/setup/derive-source.sh bookworm > "$work/debian.$(tools/setup/derive-source.sh bookworm --format)"
apt-config dump Acquire | grep -E '^Acquire::(https?::|Check-|Retries)' > "$work/10-as-host" || true
mkdir "$work/authorities"
cp /usr/local/share/ca-certificates/*.crt "$work/authorities/" 2>/dev/null || true

# `apt` variant: what Debian calls essential, and apt itself. Documentation is left out as Docker's
# slim images do, licences stay. pip may install into the system, as in Docker's image.
mmdebstrap --quiet --variant=apt --format=tar \
  --include=python3,python3-pip,python3-venv,python-is-python3,bash,coreutils,grep,tar,util-linux,procps,ca-certificates \
  --aptopt="$work/10-as-host" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --dpkgopt='force-unsafe-io' \
  --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' \
  --customize-hook="copy-in '$work/authorities' /tmp" \
  --customize-hook='mkdir -p "$1"/usr/local/share/ca-certificates && mv "$1"/tmp/authorities/* "$1"/usr/local/share/ca-certificates/ 2>/dev/null; rm -rf "$1"/tmp/authorities; chroot "$1" update-ca-certificates >/dev/null 2>&1' \
  --customize-hook='mv "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/apt/apt.conf.d/10-as-host; sed -i "/force-unsafe-io/d" "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap' \
  --customize-hook='rm -rf "$1"/var/log/*.log "$1"/var/log/apt "$1"/var/cache/ldconfig/aux-cache "$1"/var/cache/debconf/*-old' \
  bookworm "$work/layer.tar" "$work"/debian.*

tools/images/docker-archive.sh "$work/layer.tar" "$work/image.tar" python:3.11-slim '["python3"]' \
  '"org.sandlot.stand-in":"Python 3.11 from Debian packages; not the image of Docker Hub"'
mv "$work/image.tar" "$out"
echo "built $out ($(du -m "$out" | cut -f1) MiB)"

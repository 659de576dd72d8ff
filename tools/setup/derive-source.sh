#!/bin/bash
# Prints an apt source for another Debian suite, derived from the sources this machine already uses:
# the same mirror, keys and options, only the suite differs. Called by apt.sh (backports), by
# tools/images/build-python.sh and by tools/test-fresh.sh; so no mirror's name stands in this project.
#
#   derive-source.sh SUITE [--format]     --format prints only "sources" (deb822) or "list" (one line)
#
# Looks for the source of this machine's own release that has the component main, deb822 files first.
set -euo pipefail
suite=${1:?usage: derive-source.sh SUITE [--format]}
. /etc/os-release
own=${VERSION_CODENAME:?this machine has no VERSION_CODENAME in /etc/os-release}
etc=${APT_ETC:-/etc/apt}

# deb822: the stanza as it is, without comments, with Types and Suites replaced and Components kept to
# main (a mirror need not serve the other components for every suite).
deb822() {
  awk -v own="$own" -v suite="$suite" '
    BEGIN { RS = ""; FS = "\n" }
    {
      types = suites = components = ""; enabled = "yes"; kept = ""; skip = 0
      for (i = 1; i <= NF; i++) {
        line = $i
        if (line ~ /^#/) continue
        if (line ~ /^[ \t]/) { if (!skip) kept = kept line "\n"; else value[key] = value[key] " " line; if (key == "suites") suites = suites " " line; continue }
        key = tolower(line); sub(/:.*/, "", key); text = line; sub(/^[^:]*:[ \t]*/, "", text)
        skip = (key == "types" || key == "suites" || key == "components" || key == "enabled")
        if (key == "types") types = text
        else if (key == "suites") suites = text
        else if (key == "components") components = text
        else if (key == "enabled") enabled = tolower(text)
        else kept = kept line "\n"
      }
      if (enabled == "no" || (" " types " ") !~ / deb / || (" " suites " ") !~ ("[ \t]" own "[ \t]")) next
      if ((" " components " ") !~ / main /) next
      printf "Types: deb\nSuites: %s\nComponents: main\n%s", suite, kept
      exit
    }' "$@"
}

# One line: deb [options] uri suite components.
one_line() {
  awk -v own="$own" -v suite="$suite" '
    $1 == "deb" {
      options = ""; i = 2
      if ($2 ~ /^\[/) { for (; i <= NF; i++) { options = options $i " "; if ($i ~ /\]$/) { i++; break } } }
      uri = $i; found = $(i + 1); main = 0
      for (j = i + 2; j <= NF; j++) if ($j == "main") main = 1
      if (found != own || !main) next
      print "deb " options uri " " suite " main"
      exit
    }' "$@"
}

shopt -s nullglob
format=sources
answer=""
for file in "$etc"/sources.list.d/*.sources; do
  answer=$(deb822 "$file")
  [ -z "$answer" ] || break
done
if [ -z "$answer" ]; then
  format=list
  for file in "$etc"/sources.list "$etc"/sources.list.d/*.list; do
    [ -f "$file" ] || continue
    answer=$(one_line "$file")
    [ -z "$answer" ] || break
  done
fi
if [ -z "$answer" ]; then
  echo "derive-source: no apt source for '$own main' found in $etc (looked at sources.list.d/*.sources, sources.list, sources.list.d/*.list). Add your Debian mirror there." >&2
  exit 1
fi
if [ "${2:-}" = --format ]; then echo "$format"; else printf '%s\n' "$answer"; fi

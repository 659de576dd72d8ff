#!/bin/bash
# Last step of `make run`: plays the three commands of the product on a real image, printing each command
# and its answer, and removes what it made. Environment: IMAGE (default python:3.11-slim), CMD (default: a
# Python hello, or `uname -a` on another image).
set -euo pipefail
. "$(dirname "$0")/say.sh"
default=python:3.11-slim
image=${IMAGE:-$default}
sandlot=./bin/sandlot

have() { "$sandlot" image inspect "$image" >/dev/null 2>&1; }

if ! have; then
  say "pulling $image"
  # A hub that cannot be reached must not cost minutes: the pull of the default image has a short limit
  # only for finding that out (hub-answers.mjs), then all the time a slow line needs.
  if [ "$image" != "$default" ]; then
    "$sandlot" image pull "$image" || stop "cannot pull $image (see above). Another image: make run IMAGE=…; from a file: $sandlot image import FILE NAME"
  elif ! { node tools/setup/hub-answers.mjs && "$sandlot" image pull "$image"; }; then
    say "Docker Hub cannot be reached or did not give $image:"
    say "importing a stand-in of that name, built from Debian's packages"
    tools/setup/image.sh
    "$sandlot" image import .cache/images/python-3.11-slim.tar "$image" || stop "the import failed (see above)"
  fi
fi

# play SHOWN COMMAND…: prints the command as the user would type it, runs it, prints its answer.
play() {
  local shown=$1
  shift
  printf '\n$ %s\n' "$shown"
  "$@"
}

folder=$(mktemp -d)
id=
# The demo's sandbox goes, whatever happened to it.
clean_up() {
  rm -rf "$folder"
  [ -z "$id" ] || "$sandlot" rm "$id" >/dev/null 2>&1 || true
}
trap clean_up EXIT
cat >"$folder/agent.py" <<'PYTHON'
import platform
print("agent.py runs on kernel", platform.release())
PYTHON

printf '\n$ sandlot create %s\n' "$image"
id=$("$sandlot" create "$image" --label demo | tail -n 1) || { id=; stop "create failed (see above)"; }
echo "$id"

if [ -n "${CMD:-}" ]; then
  # The user's own command is a line of shell, as typed.
  play "sandlot run $id -- sh -c $(printf %q "$CMD")" "$sandlot" run "$id" -- sh -c "$CMD" || {
    code=$?
    printf '\n'
    stop "the command ended with exit code $code. The server stays up: ./bin/sandlot ls, and make stop"
  }
elif [ "$image" = "$default" ]; then
  play "sandlot run $id -- python3 -c \"print('hello')\"" "$sandlot" run "$id" -- python3 -c "print('hello')"
else
  play "sandlot run $id -- uname -a" "$sandlot" run "$id" -- uname -a
fi
play "sandlot upload $id ./agent.py /root/agent.py" "$sandlot" upload "$id" "$folder/agent.py" /root/agent.py
if [ "$image" = "$default" ]; then
  play "sandlot run $id -- python3 /root/agent.py" "$sandlot" run "$id" -- python3 /root/agent.py
fi

# row COMMAND MEANING: in columns, whatever the length of the image's name.
create="./bin/sandlot create $image"
width=${#create}
[ "$width" -ge 29 ] || width=29
row() { printf "  %-${width}s  %s\n" "$1" "$2"; }

printf '\nIt works. The server stays up in the background; the sandbox of the demo is removed. Go on with\n\n'
row "$create" 'prints an id'
row './bin/sandlot run ID -t -- sh' 'a terminal in it'
row './bin/sandlot ls' 'what runs'
row './bin/sandlot doctor' 'what this host can do'
row './bin/sandlot --help' 'everything else'
printf '\nand stop it with\n\n  make stop\n'

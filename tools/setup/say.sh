# Sourced by every step of the set-up: how a step speaks, and where its log goes.
# A step prints one line when there is nothing to do, and its commands' output to a log otherwise.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
logs=$root/.cache/log
mkdir -p "$logs"
step=$(basename "${0%.sh}")

# What happens, on stdout.
say() { printf '%-9s %s\n' "[$step]" "$*"; }

# Ends the step. Says what failed, why, and what to do.
stop() { printf '%-9s %s\n' "[$step]" "$*" >&2; exit 1; }

# logged COMMAND…: runs it with its output in .cache/log/STEP.log; says each half minute that it is still at
# it, and shows the end of the log on failure.
logged() {
  local begin=$SECONDS beat status=0
  # A read that waits, and not `sleep`: nothing is left when it is ended.
  (while ! read -rt 30 <> <(:); do say "… $((SECONDS - begin)) s, its output is in .cache/log/$step.log"; done) &
  beat=$!
  "$@" >>"$logs/$step.log" 2>&1 </dev/null || status=$?
  kill $beat 2>/dev/null
  wait $beat 2>/dev/null || true
  if [ $status != 0 ]; then
    printf '%-9s %s\n' "[$step]" "failed: $*" >&2
    tail -n 25 "$logs/$step.log" | sed "s/^/          /" >&2
    stop "the whole log: $logs/$step.log"
  fi
}

is_root() { [ "$(id -u)" = 0 ]; }

# sha256 of all that is named, as one word.
fingerprint() { cat "$@" | sha256sum | cut -d' ' -f1; }

#!/bin/bash
# `make test-long` and its parts: what takes too long for every change. Run by hand before an issue closes;
# date, commit and counts go into SPECIFICATION.md. The last line is `N passed, N failed`.
#
#   tools/test-long.sh [PART…]   parts: faults, fresh, clients; all of them if none is named
#   SANDLOT_TEST_SEED=N          repeats a random run; each test prints its seed
set -uo pipefail
cd "$(dirname "$0")/.."
logs=$PWD/.cache/log
mkdir -p "$logs"
passed=0 failed=0 skipped=0

# part_faults: kills, snapshots and large transfers. One file at a time: two would only measure each other.
part_faults() {
  local report=$logs/vitest-long.json counts status
  tools/setup/all.sh --test || { failed=$((failed + 1)); return; }
  tools/leftovers.sh >"$logs/leftovers.long"
  rm -f "$report"
  npx --no-install vitest run --project long tests/long/faults tests/long/channel --no-file-parallelism \
    --reporter=default --reporter=json --outputFile.json="$report" </dev/null
  status=$?
  counts=$(node tools/checks/count-report.mjs "$report" $status) || counts='0 1 0'
  read -r p f s <<<"$counts"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  check nothing-left tools/leftovers.sh --since "$logs/leftovers.long"
}

# part_clients: published clients, each in a virtual environment of its own, one file at a time; what they
# have found becomes the table of docs/from-prime.md.
part_clients() {
  local report=$logs/vitest-clients.json counts status commit
  tools/setup/all.sh --test || { failed=$((failed + 1)); return; }
  tools/leftovers.sh >"$logs/leftovers.clients"
  rm -rf "$report" .cache/client-results
  commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ' with changes')
  npx --no-install vitest run --project clients --no-file-parallelism \
    --reporter=default --reporter=json --outputFile.json="$report" </dev/null
  status=$?
  counts=$(node tools/checks/count-report.mjs "$report" $status) || counts='0 1 0'
  read -r p f s <<<"$counts"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  check clients-table node tools/clients-table.mjs "$commit"
  check nothing-left tools/leftovers.sh --since "$logs/leftovers.clients"
}

# part_fresh: `make test-fresh` is one check.
part_fresh() { check fresh tools/test-fresh.sh; }

# check NAME COMMAND…: one check, passed if the command exits 0.
check() {
  local name=$1
  shift
  if "$@" </dev/null; then
    passed=$((passed + 1))
    echo "ok      $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name"
  fi
}

[ $# -gt 0 ] || set -- faults fresh clients
for part in "$@"; do
  begin=$SECONDS
  case $part in
    faults | fresh | clients) "part_$part" ;;
    *)
      echo "test-long: there is no part '$part'; there are faults, fresh and clients" >&2
      failed=$((failed + 1))
      ;;
  esac
  printf 'test-long-%s took %d s\n' "$part" $((SECONDS - begin))
done
if [ "$skipped" -gt 0 ]; then
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
else
  printf '%d passed, %d failed\n' "$passed" "$failed"
fi
[ "$failed" = 0 ]

#!/bin/bash
# `make test-long` and its parts: what takes too long for every change. Run by hand before an issue closes;
# date, commit and counts go into SPECIFICATION.md. The last line is `N passed, N failed`.
#
#   tools/test-long.sh [PART…]   parts: faults, linux, fresh, clients, kvm; all of them if none is named
#   SANDLOT_TEST_SEED=N          repeats a random run; each test prints its seed
set -uo pipefail
cd "$(dirname "$0")/.."
logs=$PWD/.cache/log
mkdir -p "$logs"
passed=0 failed=0 skipped=0

# vitest_part NAME ARGUMENT…: sets up, runs one file after the other (two would only measure each other), counts.
# Call `check nothing-left` after it.
vitest_part() {
  local name=$1 report=$logs/vitest-$1.json counts status p f s
  shift
  tools/setup/all.sh --test || { failed=$((failed + 1)); return 1; }
  tools/leftovers.sh >"$logs/leftovers.$name"
  rm -f "$report"
  npx --no-install vitest run "$@" --no-file-parallelism \
    --reporter=default --reporter=json --outputFile.json="$report" </dev/null
  status=$?
  counts=$(node tools/checks/count-report.mjs "$report" $status) || counts='0 1 0'
  read -r p f s <<<"$counts"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# part_faults: kills, snapshots, copies, chains of layers, full disks and large transfers.
part_faults() {
  vitest_part faults --project long tests/long/faults tests/long/channel tests/long/chains || return
  check nothing-left tools/leftovers.sh --since "$logs/leftovers.faults"
}

# part_linux: what a real Linux machine can: hard images, Docker and Compose, heavy software, systemd, views.
part_linux() {
  vitest_part linux --project linux || return
  check nothing-left tools/leftovers.sh --since "$logs/leftovers.linux"
}

# part_clients: published clients, each in a virtual environment of its own; what they have found becomes the
# table of docs/from-prime.md.
part_clients() {
  local commit
  commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ' with changes')
  rm -rf .cache/client-results
  vitest_part clients --project clients || return
  check clients-table node tools/clients-table.mjs "$commit"
  check nothing-left tools/leftovers.sh --since "$logs/leftovers.clients"
}

# part_fresh: `make test-fresh` is one check.
part_fresh() { check fresh tools/test-fresh.sh; }

# part_kvm: `make test-kvm` is one check.
part_kvm() { check kvm tools/test-kvm.sh; }

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

[ $# -gt 0 ] || set -- faults linux fresh clients kvm
for part in "$@"; do
  begin=$SECONDS
  case $part in
    faults | linux | fresh | clients | kvm) "part_$part" ;;
    *)
      echo "test-long: there is no part '$part'; there are faults, linux, fresh, clients and kvm" >&2
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

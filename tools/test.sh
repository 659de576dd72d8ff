#!/bin/bash
# `make test`: sets up, then every check and test of the short suite; the last line is `N passed, N failed`.
# Goes on after a failure, so that one run shows all. Logs are in .cache/log.
set -uo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
logs=$PWD/.cache/log
mkdir -p "$logs"
passed=0 failed=0 skipped=0
tools/leftovers.sh >"$logs/leftovers.before"

# count PASSED FAILED [SKIPPED]
count() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + ${3:-0})); }

# check NAME COMMAND…: one check, passed if the command exits 0; its output is shown if not.
check() {
  local name=$1 begin=$SECONDS
  shift
  if "$@" >"$logs/check-$name.log" 2>&1 </dev/null; then
    count 1 0
    printf 'ok      %s (%d s)\n' "$name" $((SECONDS - begin))
  else
    count 0 1
    printf 'FAILED  %s (%d s)\n' "$name" $((SECONDS - begin))
    tail -n 60 "$logs/check-$name.log"
  fi
}

# vitest_run NAME ARGUMENT…: a part of the TypeScript tests, counted from vitest's own JSON report.
vitest_run() {
  local name=$1 report=$logs/vitest-$1.json begin=$SECONDS counts
  shift
  rm -f "$report"
  npx --no-install vitest run "$@" --reporter=default --reporter=json --outputFile.json="$report" </dev/null
  local status=$?
  # A run that failed without a failed test (a file that does not load, an error outside tests) is one failure.
  counts=$(node tools/checks/count-report.mjs "$report" $status) || counts='0 1 0'
  # shellcheck disable=SC2086
  count $counts
  printf '%s: %s (passed, failed, skipped; %d s)\n' "$name" "$counts" $((SECONDS - begin))
}

if ! tools/setup/all.sh --test; then
  echo "the set-up failed, no test was run"
  echo "0 passed, 1 failed"
  exit 1
fi

check lint npx --no-install biome check .
check types npx --no-install tsc -b
check types-tests npx --no-install tsc --noEmit -p tests
check types-parts npx --no-install tsc --noEmit -p tests/parts.tsconfig.json
check rust-format cargo fmt --manifest-path guest-agent/Cargo.toml --check
(cd guest-agent && cargo clippy --locked --all-targets -- -D warnings) >"$logs/clippy.log" 2>&1 </dev/null
if [ $? = 0 ]; then count 1 0; echo "ok      rust-lint"; else count 0 1; echo "FAILED  rust-lint"; tail -n 60 "$logs/clippy.log"; fi

(cd guest-agent && cargo test --locked) >"$logs/cargo-test.log" 2>&1 </dev/null
status=$?
read -r rust_passed rust_failed rust_skipped < <(awk '/^test result:/ {p += $4; f += $6; i += $8} END {print p + 0, f + 0, i + 0}' "$logs/cargo-test.log")
[ $status = 0 ] || [ "$rust_failed" -gt 0 ] || rust_failed=1
count "$rust_passed" "$rust_failed" "$rust_skipped"
echo "guest agent: $rust_passed passed, $rust_failed failed"
[ "$rust_failed" = 0 ] || tail -n 60 "$logs/cargo-test.log"

# Parts may run side by side; tests with whole servers and many machines run one file at a time, because
# two of them on 2 cores only measure each other.
vitest_run parts --project parts --passWithNoTests
vitest_run whole --project whole --no-file-parallelism --passWithNoTests

check nothing-left tools/leftovers.sh --since "$logs/leftovers.before"

printf 'make test took %d s\n' $((SECONDS - started))
if [ "$skipped" -gt 0 ]; then
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
else
  printf '%d passed, %d failed\n' "$passed" "$failed"
fi
[ "$failed" = 0 ]

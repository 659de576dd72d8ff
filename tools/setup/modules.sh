#!/bin/bash
# Set-up step 3: npm modules. Runs `npm ci` only when what is installed differs from package-lock.json.
set -euo pipefail
. "$(dirname "$0")/say.sh"

# Compiled here against this Node's headers; see .npmrc. The prefix differs from /usr where Node was
# not installed by a package.
npm_config_nodedir=$(node -p 'require("node:path").dirname(require("node:path").dirname(process.execPath))')
export npm_config_nodedir npm_config_build_from_source=true npm_config_update_notifier=false

# A module built for another Node does not load; nor one whose build npm was told not to run.
loads() { node -e 'new (require("better-sqlite3"))(":memory:").close()' 2>>"$logs/$step.log"; }

if node tools/setup/lock-is-installed.mjs && loads; then
  say "npm modules are up to date"
  exit 0
fi
if ! node tools/setup/lock-is-installed.mjs; then
  say "npm ci (compiles better-sqlite3)"
  logged npm ci --no-audit --no-fund
fi
if ! loads; then
  say "compiling better-sqlite3"
  logged npm rebuild better-sqlite3
  loads || stop "better-sqlite3 does not load after a rebuild; see $logs/$step.log"
fi
say "npm modules installed"

#!/usr/bin/env node
/** The process of the command line, started by `bin/sandlot`. Answers `--version` without loading anything else. */
import { version } from './version.js';

const args = process.argv.slice(2);
if (Number(process.versions.node.split('.')[0]) < 20) {
  process.stderr.write(
    `sandlot: Node ${process.versions.node} is too old\n  Install Node 20 or newer, or set SANDLOT_NODE to one.\n`,
  );
  process.exitCode = 1;
} else if (args.length === 1 && (args[0] === '--version' || args[0] === '-V')) {
  process.stdout.write(`${version()}\n`);
} else {
  const [{ runCli }, { processContext }] = await Promise.all([import('./cli.js'), import('./context.js')]);
  const code = await runCli(args, processContext());
  // Idle connections and an open terminal must not hold the process; what was written must be out first.
  process.exitCode = code;
  await new Promise<void>((resolve) => process.stdout.write('', () => resolve()));
  await new Promise<void>((resolve) => process.stderr.write('', () => resolve()));
  process.exit(code);
}

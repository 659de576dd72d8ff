/** The node agent's process. Started by `sandlot up` with the flags of `options.ts`; ends on SIGTERM or by `POST /v1/shutdown`. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import type { NodeAgent } from './agent.js';
import { openLog } from './log-output.js';
import { LogRotation } from './log-rotation.js';
import { OptionError, parseOptions } from './options.js';
import { version } from './version.js';

/** A close that hangs must not keep the process: what it did not finish is done by the next start. */
const closeTimeoutMs = 60_000;

async function main(): Promise<void> {
  const options = parseOptions(process.argv.slice(2));
  if (options.checkOnly) return;
  const { startNodeAgent } = await import('./agent.js');
  const log = openLog({ name: 'node-agent', level: options.logLevel });
  process.on('unhandledRejection', (error) => log.error({ err: error }, 'unhandled rejection'));
  if (options.logFolder !== undefined) {
    const logs = new LogRotation(options.logFolder, (error) =>
      log.error({ err: error }, 'a log could not be set aside'),
    );
    void logs.check();
  }
  let agent: NodeAgent | undefined;
  let closing = false;
  const close = (mode: 'keep' | 'remove') => {
    if (closing) return;
    closing = true;
    log.info({ mode }, 'closing');
    setTimeout(() => process.exit(1), closeTimeoutMs).unref();
    Promise.resolve(agent?.close(mode)).then(
      () => process.exit(0),
      (error: unknown) => {
        log.error({ err: error }, 'closing failed');
        process.exit(1);
      },
    );
  };
  process.on('SIGTERM', () => close('keep'));
  process.on('SIGINT', () => close('keep'));
  agent = await startNodeAgent(options, log, close);
  if (options.readyFile) await writeReadyFile(options.readyFile);
  log.info({ socket: options.socketPath, version }, 'ready');
}

async function writeReadyFile(path: string): Promise<void> {
  const stat = await readFile('/proc/self/stat', 'utf8');
  const startTicks = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
  await writeFile(`${path}.new`, JSON.stringify({ pid: process.pid, startTicks, version }));
  await rename(`${path}.new`, path);
}

main().catch((error: unknown) => {
  const message = error instanceof Error ? error.message : String(error);
  process.stderr.write(`node agent: ${message}\n`);
  if (!(error instanceof OptionError) && error instanceof Error) process.stderr.write(`${error.stack}\n`);
  process.exit(error instanceof OptionError ? 2 : 1);
});

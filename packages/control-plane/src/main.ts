/**
 * The control plane's process, started by `sandlot up`. Writes the ready file when it takes requests;
 * SIGTERM and SIGINT stop it and leave sandboxes running.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { productVersion } from '@sandlot/protocol';
import { openLog } from './log-output.js';
import { OptionError, parseOptions } from './options.js';

const listenAdvice = {
  EADDRINUSE: 'stop the program that does (`ss -ltnp` names it)',
  EADDRNOTAVAIL: 'this machine has no such address: add it',
  EACCES: 'ports below 1024 need root: start it as root',
};

/** A stop that takes longer has gone wrong: what it did not finish is done by the next start. */
const closeTimeoutMs = 30_000;

async function main(): Promise<void> {
  const { server, readyFile, logLevel, checkOnly } = parseOptions(process.argv.slice(2));
  if (checkOnly) {
    const { readCertificate } = await import('./edge/certificate.js');
    // On the standard output: a complaint on the other one means that nothing may be started.
    for (const warning of server.tls ? readCertificate(server.tls, server.publicUrl).warnings : [])
      process.stdout.write(`${warning}\n`);
    return;
  }
  const { startControlPlane } = await import('./start.js');
  const log = openLog({ name: 'control-plane', level: logLevel, redact: ['req.headers.authorization'] });
  process.on('unhandledRejection', (error) => log.error({ err: error }, 'unhandled rejection'));
  const controlPlane = await startControlPlane(server, { log });
  let stopping = false;
  const stop = (signal: string) => {
    if (stopping) return;
    stopping = true;
    log.info({ signal }, 'stopping');
    setTimeout(() => process.exit(1), closeTimeoutMs).unref();
    controlPlane.close().then(
      () => process.exit(0),
      (error: unknown) => {
        log.error({ err: error }, 'stopping failed');
        process.exit(1);
      },
    );
  };
  process.on('SIGTERM', () => stop('SIGTERM'));
  process.on('SIGINT', () => stop('SIGINT'));
  if (readyFile !== undefined) writeReadyFile(readyFile);
  log.info({ address: controlPlane.address, version: productVersion }, 'ready');
}

/** `{pid, startTicks, version}`: a pid alone could be another process's by the time it is read. */
function writeReadyFile(file: string): void {
  const stat = readFileSync('/proc/self/stat', 'utf8');
  // Field 22 of proc(5); the name before it may hold spaces and parentheses.
  const startTicks = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
  writeFileSync(`${file}.new`, JSON.stringify({ pid: process.pid, startTicks, version: productVersion }));
  renameSync(`${file}.new`, file);
}

main().catch((error: unknown) => {
  process.stderr.write(`control plane: ${describe(error)}\n`);
  process.exit(error instanceof OptionError ? 64 : 1);
});

function describe(error: unknown): string {
  if (error instanceof OptionError) return error.message;
  const { code, address, port } = error as NodeJS.ErrnoException & { address?: string; port?: number };
  if (code === 'EADDRINUSE' || code === 'EADDRNOTAVAIL' || code === 'EACCES')
    if (port !== undefined)
      return `it cannot listen on ${address}:${port} (${code}): ${listenAdvice[code]}, or choose another address with --listen`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

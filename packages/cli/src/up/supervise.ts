/**
 * `up` in the foreground: keeps both daemons running until Ctrl-C or SIGTERM, or until a `down`
 * elsewhere has ended them. A daemon that a `up --restart` elsewhere has renewed is kept from then on.
 */
import { existsSync } from 'node:fs';
import type { CliContext } from '../context.js';
import { type DaemonSpec, isRunning, lastLines, startDaemon } from './daemon.js';
import { type LocalServer, openNodeSocket } from './local-server.js';
import { withLock } from './lock.js';
import { isAlive, readReadyFile } from './process-identity.js';
import { stopDaemon } from './stop-daemon.js';

/** How often the daemons are looked at. */
const lookMs = 500;
/** Pauses before a daemon is started again after it died, ms; the last repeats. */
const restartPausesMs = [200, 1_000, 5_000, 15_000];
/** One that ran this long counts as well again. */
const wellAfterMs = 60_000;

/** `told`: we were told to stop, and both have ended. `elsewhere`: somebody else has ended them. */
export async function supervise(context: CliContext, server: LocalServer): Promise<'told' | 'elsewhere'> {
  const stop = new AbortController();
  let isTold = false;
  const undo = (['SIGINT', 'SIGTERM', 'SIGHUP'] as const).map((name) =>
    context.onSignal(name, () => {
      isTold = true;
      stop.abort();
    }),
  );
  try {
    await Promise.all(
      [server.nodeAgent, server.controlPlane].map(async (spec) => {
        await keep(context, server, spec, stop.signal);
        stop.abort();
      }),
    );
    if (!isTold) return 'elsewhere';
    context.out.note('stopping the daemons …');
    await withLock(
      server.layout.run,
      () => undefined,
      async () => {
        await stopDaemon(server.controlPlane.readyFile);
        await stopDaemon(server.nodeAgent.readyFile);
      },
    );
    return 'told';
  } finally {
    for (const one of undo) one();
  }
}

/** Returns when it is not to be kept any more. */
async function keep(
  context: CliContext,
  server: LocalServer,
  spec: DaemonSpec,
  stop: AbortSignal,
): Promise<void> {
  let failures = 0;
  let aliveSince = performance.now();
  for (;;) {
    await pause(lookMs, stop);
    if (stop.aborted) return;
    if (isAlive(readReadyFile(spec.readyFile))) {
      if (performance.now() - aliveSince > wellAfterMs) failures = 0;
      continue;
    }
    await pause(restartPausesMs[Math.min(failures++, restartPausesMs.length - 1)] ?? 0, stop);
    if (stop.aborted) return;
    const isKept = await withLock(
      server.layout.run,
      () => undefined,
      () => revive(context, server, spec),
    );
    if (!isKept) return;
    aliveSince = performance.now();
  }
}

/** Starts a daemon that died; false when it was not an accident: who ends one on purpose removes its ready file. */
async function revive(context: CliContext, server: LocalServer, spec: DaemonSpec): Promise<boolean> {
  if (await isRunning(spec)) return true;
  if (!existsSync(spec.readyFile)) return false;
  context.out.note(`the ${spec.role} has ended; starting it again. Its last lines:`);
  context.out.note(lastLines(spec.logFile, 5).replace(/^/gm, '    '));
  try {
    await startDaemon(spec);
    if (spec === server.nodeAgent) openNodeSocket(server);
  } catch (error) {
    context.out.note(error instanceof Error ? error.message : String(error));
  }
  return true;
}

function pause(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      stop.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    stop.addEventListener('abort', done, { once: true });
    if (stop.aborted) done();
  });
}

/** `up` in the foreground: keeps both daemons running until Ctrl-C or SIGTERM. */
import type { ChildProcess } from 'node:child_process';
import type { CliContext } from '../context.js';
import { type DaemonSpec, lastLines, startDaemon } from './daemon.js';
import { type LocalServer, openNodeSocket } from './local-server.js';
import { stopDaemon } from './stop-daemon.js';

/** Pauses before a daemon is started again after it died, ms; the last repeats. */
const restartPausesMs = [200, 1_000, 5_000, 15_000];
/** One that ran this long counts as well again. */
const wellAfterMs = 60_000;

/** Resolves when it was told to stop and both have ended. */
export async function supervise(
  context: CliContext,
  server: LocalServer,
  children: { nodeAgent: ChildProcess | undefined; controlPlane: ChildProcess | undefined },
): Promise<void> {
  const stop = new AbortController();
  const undo = (['SIGINT', 'SIGTERM', 'SIGHUP'] as const).map((name) =>
    context.onSignal(name, () => stop.abort()),
  );
  try {
    await Promise.all([
      keep(context, server.nodeAgent, children.nodeAgent, stop.signal, () => openNodeSocket(server)),
      keep(context, server.controlPlane, children.controlPlane, stop.signal, () => undefined),
    ]);
    context.out.note('stopping the daemons …');
    await stopDaemon(server.controlPlane.readyFile);
    await stopDaemon(server.nodeAgent.readyFile);
  } finally {
    for (const one of undo) one();
  }
}

async function keep(
  context: CliContext,
  spec: DaemonSpec,
  first: ChildProcess | undefined,
  stop: AbortSignal,
  onStart: () => void,
): Promise<void> {
  let child = first;
  for (let failures = 0; !stop.aborted; ) {
    const begun = performance.now();
    if (child) {
      const end = await ended(child, stop);
      if (end === undefined) return;
      if (performance.now() - begun > wellAfterMs) failures = 0;
      context.out.note(`the ${spec.role} has ended (${end}); starting it again. Its last lines:`);
      context.out.note(lastLines(spec.logFile, 5).replace(/^/gm, '    '));
    }
    await pause(restartPausesMs[Math.min(failures++, restartPausesMs.length - 1)] ?? 0, stop);
    if (stop.aborted) return;
    try {
      child = (await startDaemon(spec)).child;
      onStart();
    } catch (error) {
      child = undefined;
      context.out.note(error instanceof Error ? error.message : String(error));
    }
  }
}

/** How the child ended; undefined when we were told to stop first. */
function ended(child: ChildProcess, stop: AbortSignal): Promise<string | undefined> {
  return new Promise((resolve) => {
    const text = () => (child.signalCode ? child.signalCode : `exit code ${child.exitCode}`);
    if (child.exitCode !== null || child.signalCode !== null) {
      resolve(text());
      return;
    }
    child.ref();
    const done = (value: string | undefined) => {
      child.off('exit', onExit);
      stop.removeEventListener('abort', onStop);
      resolve(value);
    };
    const onExit = () => done(text());
    const onStop = () => done(undefined);
    child.once('exit', onExit);
    stop.addEventListener('abort', onStop, { once: true });
    if (stop.aborted) onStop();
  });
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
  });
}

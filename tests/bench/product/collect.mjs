// Garbage collection in our daemons from outside, so that what is left is what they keep: a heap grows until
// Node sees a reason to collect, and no reading of memory before tells that from a leak. Used by groups churn and image, and by bench-load.
import { setTimeout as sleep } from 'node:timers/promises';

/** Where Node opens its inspector on SIGUSR1: one process at a time. */
const inspector = 'http://127.0.0.1:9229/json';
const deadlineMs = 20_000;

/** Collects all garbage of a Node process, twice: what a finalizer lets go is garbage only then. */
export async function collectGarbage(pid) {
  if (await findTarget()) throw new Error(`something listens at ${inspector} already; it must be free`);
  process.kill(pid, 'SIGUSR1');
  const target = await until(findTarget, `process ${pid} opens no inspector`);
  const socket = new WebSocket(target.webSocketDebuggerUrl);
  await new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onerror = () => reject(new Error(`the inspector of process ${pid} cannot be reached`));
  });
  let last = 0;
  const call = (method, params = {}) =>
    new Promise((resolve, reject) => {
      const id = ++last;
      socket.addEventListener('message', ({ data }) => {
        const answer = JSON.parse(data);
        if (answer.id !== id) return;
        if (answer.error || answer.result.exceptionDetails) reject(new Error(`${method}: ${data}`));
        else resolve();
      });
      socket.send(JSON.stringify({ id, method, params }));
    });
  await call('HeapProfiler.enable');
  await call('HeapProfiler.collectGarbage');
  await call('HeapProfiler.collectGarbage');
  // Closing waits for us to be gone, so it must not be within our call; `require` is there only within it.
  await call('Runtime.evaluate', {
    expression: "setTimeout(require('node:inspector').close, 100)",
    includeCommandLineAPI: true,
  });
  socket.close();
  await until(async () => !(await findTarget()), `process ${pid} keeps its inspector open`);
}

async function findTarget() {
  try {
    return (await (await fetch(inspector)).json())[0];
  } catch {
    return undefined;
  }
}

async function until(find, failure) {
  for (const deadline = performance.now() + deadlineMs; performance.now() < deadline; await sleep(100)) {
    const found = await find();
    if (found) return found;
  }
  throw new Error(failure);
}

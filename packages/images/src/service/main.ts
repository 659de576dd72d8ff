/**
 * The process of the image store: opens a store and answers the calls of its parent, which `store-process.ts` makes.
 * Pulls and builds take hundreds of MiB for a while; a node agent of that size would stand still at every process that
 * it starts (docs/rfd/0002).
 *
 * If we die: the parent starts another, which sweeps what we left. If the parent dies: we end at once.
 */
import { openImageStore } from '../open-image-store.js';
import { sparingly } from '../progress.js';
import { ImageError, type ImageStore } from '../store.js';
import type { FromStore, SentFailure, ToStore } from './messages.js';

/** Progress of one call is told at most this often, ms. */
const PROGRESS_INTERVAL_MS = 50;

/** A call that runs. */
interface Running {
  abort: AbortController;
  /** Takes the answer to a `more`. */
  onChunk?: (chunk: Extract<ToStore, { kind: 'chunk' }>) => void;
}

const running = new Map<number, Running>();
let store: ImageStore | undefined;

function send(message: FromStore): void {
  // Nobody is left to tell when it fails: the channel's end ends us.
  if (process.connected) process.send!(message, () => undefined);
}

async function open(message: Extract<ToStore, { kind: 'open' }>): Promise<void> {
  try {
    store = await openImageStore(message.options);
    send({ kind: 'opened' });
  } catch (error) {
    send({ kind: 'opened', failure: failureOf(error) });
  }
}

async function call(message: Extract<ToStore, { kind: 'call' }>): Promise<void> {
  const { id, method, args } = message;
  const mine: Running = { abort: new AbortController() };
  running.set(id, mine);
  try {
    const onProgress = sparingly(PROGRESS_INTERVAL_MS, (progress) =>
      send({ kind: 'progress', id, progress }),
    );
    const options = { ...message.options, signal: mine.abort.signal, onProgress };
    const isImport = method === 'importArchive';
    const all = isImport ? [chunksOf(id, mine), ...args, options] : [...args, options];
    // The names come from our own parent, which has them from the interface.
    const run = store![method] as (...args: unknown[]) => Promise<unknown>;
    send({ kind: 'result', id, value: await run.apply(store, all) });
  } catch (error) {
    send({ kind: 'failure', id, failure: failureOf(error) });
  } finally {
    running.delete(id);
  }
}

/** The parent's archive, asked for piece by piece. */
async function* chunksOf(id: number, mine: Running): AsyncGenerator<Uint8Array> {
  const { signal } = mine.abort;
  for (;;) {
    const chunk = await new Promise<Extract<ToStore, { kind: 'chunk' }>>((resolve, reject) => {
      const giveUp = () => reject(signal.reason);
      if (signal.aborted) return giveUp();
      signal.addEventListener('abort', giveUp, { once: true });
      mine.onChunk = (answer) => {
        signal.removeEventListener('abort', giveUp);
        resolve(answer);
      };
      send({ kind: 'more', id });
    });
    if (chunk.failure !== undefined) throw new Error(chunk.failure);
    if (chunk.bytes === undefined) return;
    yield chunk.bytes;
  }
}

function failureOf(error: unknown): SentFailure {
  if (!(error instanceof Error)) return { message: String(error) };
  const code = error instanceof ImageError ? error.code : undefined;
  const { code: errno } = error as NodeJS.ErrnoException;
  return {
    code,
    ...(code === undefined && typeof errno === 'string' ? { errno } : {}),
    message: error.message,
    stack: error.stack,
  };
}

process.on('message', (message: ToStore) => {
  if (message.kind === 'open') void open(message);
  else if (message.kind === 'call') void call(message);
  else if (message.kind === 'abort') running.get(message.id)?.abort.abort();
  else running.get(message.id)?.onChunk?.(message);
});
process.on('disconnect', () => process.exit(0));
// Whoever stops a whole group or service means the node agent, which ends us when it is done.
process.on('SIGTERM', () => undefined);
process.on('SIGINT', () => undefined);

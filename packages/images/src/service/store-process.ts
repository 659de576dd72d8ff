/**
 * The image store in a process of its own, to its owner like one here: `openStoreProcess` starts it, the node agent owns it.
 * A process that ends by itself is replaced at once, and what can be asked twice is asked again.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { ImageStoreOptions } from '../open-image-store.js';
import { cancelled } from '../store/single-flight.js';
import {
  ImageError,
  type ImageStore,
  type PullOptions,
  type RootfsHold,
  type StoredImage,
} from '../store.js';
import type { FromStore, SentFailure, StoreMethod, ToStore } from './messages.js';

/** How long it may take to close before it is ended. Builds that run are aborted, not awaited. */
const CLOSE_TIMEOUT_MS = 20_000;
/** How often one call is asked of a new process after the one that had it ended. */
const MAX_REPEATS = 1;

type Listed = StoredImage & { holders: number; contentBytes: number };

/** Starts the process and opens the store in it. Throws what `openImageStore` throws. @param onEnd is told when the process ended by itself, and how */
export async function openStoreProcess(
  options: ImageStoreOptions,
  onEnd: (how: string) => void,
): Promise<ImageStore> {
  const store = new StoreProcess(options, onEnd);
  await store.start();
  return store;
}

/** A call whose answer is awaited. */
interface Pending {
  method: StoreMethod;
  args: unknown[];
  options: PullOptions;
  archive: AsyncIterator<Uint8Array> | undefined;
  repeats: number;
  resolve(value: unknown): void;
  reject(error: Error): void;
}

class StoreProcess implements ImageStore {
  readonly #pending = new Map<number, Pending>();
  #lastId = 0;
  #child: ChildProcess | undefined;
  /** Settles when the store of the newest process is open. */
  #opened: Promise<ChildProcess> | undefined;
  #isOpen = false;
  #isClosed = false;

  constructor(
    private readonly options: ImageStoreOptions,
    private readonly onEnd: (how: string) => void,
  ) {}

  /** The process with an open store; a new one if there is none. */
  start(): Promise<ChildProcess> {
    this.#opened ??= this.#launch().catch((error: unknown) => {
      this.#opened = undefined;
      throw error;
    });
    return this.#opened;
  }

  acquire(reference: string, holder: string, options?: PullOptions): Promise<RootfsHold> {
    return this.#call('acquire', [reference, holder], options);
  }

  prepare(reference: string, options?: PullOptions): Promise<void> {
    return this.#call('prepare', [reference], options);
  }

  isReady(reference: string): Promise<boolean> {
    return this.#call('isReady', [reference]);
  }

  share(other: string, holder: string): Promise<void> {
    return this.#call('share', [other, holder]);
  }

  release(holder: string): Promise<void> {
    return this.#call('release', [holder]);
  }

  holders(): Promise<string[]> {
    return this.#call('holders', []);
  }

  pull(reference: string, options?: PullOptions): Promise<StoredImage> {
    return this.#call('pull', [reference], options);
  }

  importArchive(
    archive: AsyncIterable<Uint8Array>,
    name: string,
    options?: PullOptions,
  ): Promise<StoredImage> {
    return this.#call('importArchive', [name], options, archive[Symbol.asyncIterator]());
  }

  importFolder(folder: string, name: string, options?: PullOptions): Promise<StoredImage> {
    return this.#call('importFolder', [folder, name], options);
  }

  list(): Promise<Listed[]> {
    return this.#call('list', []);
  }

  get(reference: string): Promise<Listed | undefined> {
    return this.#call('get', [reference]);
  }

  remove(reference: string): Promise<void> {
    return this.#call('remove', [reference]);
  }

  prune(): Promise<{ removed: string[]; freedBytes: number }> {
    return this.#call('prune', []);
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    const closing = this.#child && this.#call<void>('close', []);
    this.#isClosed = true;
    const child = this.#child;
    if (!child) return;
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    const timer = setTimeout(() => child.kill('SIGKILL'), CLOSE_TIMEOUT_MS);
    try {
      await closing;
    } finally {
      if (child.connected) child.disconnect();
      await ended;
      clearTimeout(timer);
    }
  }

  async #call<T>(
    method: StoreMethod,
    args: unknown[],
    options: PullOptions = {},
    archive?: AsyncIterator<Uint8Array>,
  ): Promise<T> {
    if (this.#isClosed) throw new ImageError('aborted', 'the image store is closed');
    if (options.signal?.aborted) throw cancelled(options.signal);
    const id = ++this.#lastId;
    const abort = () => this.#send({ kind: 'abort', id });
    options.signal?.addEventListener('abort', abort, { once: true });
    try {
      return await new Promise<T>((resolve, reject) => {
        const call: Pending = {
          method,
          args,
          options,
          archive,
          repeats: 0,
          resolve: resolve as (value: unknown) => void,
          reject,
        };
        this.#pending.set(id, call);
        void this.#ask(id, call);
      });
    } finally {
      options.signal?.removeEventListener('abort', abort);
      this.#pending.delete(id);
      // As a loop that is left would: whoever sends the archive learns that nobody reads on. It may be waiting for its
      // sender, so we do not.
      void archive?.return?.().catch(() => undefined);
    }
  }

  async #ask(id: number, call: Pending): Promise<void> {
    try {
      await this.start();
      const { auth, signal } = call.options;
      this.#send({
        kind: 'call',
        id,
        method: call.method,
        args: call.args,
        options: auth ? { auth } : {},
      });
      if (signal?.aborted) this.#send({ kind: 'abort', id });
    } catch (error) {
      call.reject(error as Error);
    }
  }

  #send(message: ToStore): void {
    // A process that has just gone is noticed by its end, which settles or repeats all calls.
    if (this.#child?.connected) this.#child.send(message, () => undefined);
  }

  #launch(): Promise<ChildProcess> {
    // Its folder is for whoever looks at a list of processes.
    const child = fork(fileURLToPath(new URL('./main.js', import.meta.url)), [this.options.root], {
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      execArgv: ['--enable-source-maps'],
      cwd: '/',
    });
    this.#child = child;
    return new Promise((resolve, reject) => {
      child.on('error', (cause) => reject(notStarted(cause.message, cause)));
      child.once('exit', (code, signal) => {
        const how = signal ? `ended by ${signal}` : `exit code ${code}`;
        reject(notStarted(how));
        this.#ended(child, how);
      });
      child.on('message', (message: FromStore) => {
        if (message.kind !== 'opened') return void this.#take(message);
        if (message.failure) {
          child.disconnect();
          return reject(errorOf(message.failure));
        }
        this.#isOpen = true;
        resolve(child);
      });
      this.#send({ kind: 'open', options: this.options });
    });
  }

  async #take(message: Exclude<FromStore, { kind: 'opened' }>): Promise<void> {
    const call = this.#pending.get(message.id);
    if (!call) return;
    if (message.kind === 'result') call.resolve(message.value);
    else if (message.kind === 'failure') call.reject(errorOf(message.failure));
    else if (message.kind === 'progress') call.options.onProgress?.(message.progress);
    else this.#send({ kind: 'chunk', id: message.id, ...(await nextChunk(call.archive!)) });
  }

  #ended(child: ChildProcess, how: string): void {
    if (this.#child !== child) return;
    this.#child = undefined;
    this.#opened = undefined;
    // One that never opened has rejected those that waited for it.
    const wasOpen = this.#isOpen;
    this.#isOpen = false;
    if (this.#isClosed || !wasOpen) return;
    this.onEnd(how);
    for (const [id, call] of this.#pending) {
      if (call.archive || call.repeats >= MAX_REPEATS) {
        call.reject(
          new ImageError('aborted', `the process of the image store ended meanwhile (${how}); try again`),
        );
      } else {
        call.repeats++;
        void this.#ask(id, call);
      }
    }
  }
}

async function nextChunk(
  archive: AsyncIterator<Uint8Array>,
): Promise<{ bytes?: Uint8Array; failure?: string }> {
  try {
    const { done, value } = await archive.next();
    return done ? {} : { bytes: value };
  } catch (error) {
    return { failure: error instanceof Error ? error.message : String(error) };
  }
}

function notStarted(why: string, cause?: Error): ImageError {
  return new ImageError('build-failed', `the process of the image store could not be started: ${why}`, {
    cause,
  });
}

/** The error as it was thrown there, with the stack of there. */
function errorOf({ code, errno, message, stack }: SentFailure): Error {
  const error = code ? new ImageError(code, message) : new Error(message);
  if (errno !== undefined) Object.assign(error, { code: errno });
  if (stack !== undefined) error.stack = stack;
  return error;
}

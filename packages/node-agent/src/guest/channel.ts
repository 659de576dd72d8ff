/**
 * The connection to one guest agent: two sockets, RESET and SYNC, then HTTP/2. Used by
 * `guest-client.ts`. The channel connects when it is first used and again after it broke; a stream
 * that was open when it broke fails. Why two ports and a nonce: docs/architecture.md, "The channel to the guest".
 */
import { randomBytes } from 'node:crypto';
import http2 from 'node:http2';
import net from 'node:net';
import type { GuestPorts } from '@sandlot/vmm';

/** Flow control windows and frame size, bytes; the guest uses the same and says why (`channel/connection.rs`). */
const streamWindowBytes = 1024 * 1024;
const connectionWindowBytes = 4 * streamWindowBytes;
const maxFrameBytes = 32_759;
/** Streams whose reader is slow keep a window each; Node refuses new streams beyond this. */
const maxSessionMemoryMB = 256;
/** First wait for SYNC; doubled with each try, because a busy host makes a guest slow, and each RESET costs it work again. */
const firstSyncTimeoutMs = 1_000;

/** The guest could not be reached, or the connection to it broke. */
export class GuestUnreachableError extends Error {
  override name = 'GuestUnreachableError';
}

/** It is not there for a reason that the text tells. */
export class GuestLeftError extends GuestUnreachableError {
  override name = 'GuestLeftError';
}

/** Its sandbox was paused: the next use lets it go on. */
export class GuestPausedError extends GuestLeftError {
  override name = 'GuestPausedError';
}

/** Its guest has rebooted: what ran in it is gone, and it is there again in a moment. */
export class GuestRebootedError extends GuestLeftError {
  override name = 'GuestRebootedError';
}

/** One guest's connection. */
export class GuestChannel {
  #session: http2.ClientHttp2Session | undefined;
  #connecting: Promise<http2.ClientHttp2Session> | undefined;
  #sockets: net.Socket[] = [];
  #closed = false;
  /** Bytes of earlier connections that were skipped, for metrics and tests. */
  skippedBytes = 0;

  constructor(private readonly ports: GuestPorts) {}

  /**
   * The live HTTP/2 session; connects if there is none.
   * @param deadlineMs how long to go on trying, in milliseconds
   * @throws GuestUnreachableError
   */
  async session(deadlineMs = 10_000, signal?: AbortSignal): Promise<http2.ClientHttp2Session> {
    if (this.#session && !this.#session.destroyed && !this.#session.closed) return this.#session;
    this.#connecting ??= this.#connect(deadlineMs, signal).finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  /** Closes both sockets; open streams fail, with `reason` if there is one. The guest keeps its sessions. */
  close(reason?: GuestUnreachableError): void {
    this.#closed = true;
    this.#dropConnection(reason);
  }

  /** The same, but the next use connects again. */
  disconnect(): void {
    this.#dropConnection();
  }

  #dropConnection(reason?: GuestUnreachableError): void {
    this.#session?.destroy(reason);
    this.#session = undefined;
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets = [];
  }

  async #connect(deadlineMs: number, signal?: AbortSignal): Promise<http2.ClientHttp2Session> {
    const endsAt = performance.now() + deadlineMs;
    let syncTimeoutMs = firstSyncTimeoutMs;
    let lastError: unknown;
    while (performance.now() < endsAt) {
      if (this.#closed) throw new GuestUnreachableError('the connection to the guest was closed');
      signal?.throwIfAborted();
      this.#dropConnection();
      try {
        const remainingMs = Math.max(50, endsAt - performance.now());
        this.#session = await this.#connectOnce(Math.min(syncTimeoutMs, remainingMs));
        if (this.#closed) {
          this.#dropConnection();
          continue;
        }
        return this.#session;
      } catch (error) {
        lastError = error;
        if (isSyncTimeout(error)) syncTimeoutMs *= 2;
        else await new Promise((resolve) => setTimeout(resolve, 5));
      }
    }
    throw new GuestUnreachableError(`the guest agent did not answer within ${deadlineMs} ms`, {
      cause: lastError,
    });
  }

  async #connectOnce(syncTimeoutMs: number): Promise<http2.ClientHttp2Session> {
    const [ctl, data] = await Promise.all([
      openSocket(this.ports.ctl, this.#sockets),
      openSocket(this.ports.data, this.#sockets),
    ]);
    const nonce = randomBytes(16).toString('hex');
    const synced = this.#waitForSync(data, nonce, syncTimeoutMs);
    ctl.write(`\nRESET ${nonce}\n`);
    await synced;
    const session = http2.connect('http://guest', {
      createConnection: () => data,
      maxSessionMemory: maxSessionMemoryMB,
      settings: { initialWindowSize: streamWindowBytes, maxFrameSize: maxFrameBytes, enablePush: false },
    });
    // A session that was closed before it says that it is connected has no window any more.
    session.once('connect', () => {
      if (!session.destroyed) session.setLocalWindowSize(connectionWindowBytes);
    });
    // The streams carry the error to their callers; an unhandled one here would end the process.
    session.on('error', () => {});
    session.once('close', () => {
      if (this.#session === session) this.#dropConnection();
      ctl.destroy();
      data.destroy();
    });
    // QEMU's end of the ctl socket closes when the machine ends.
    ctl.once('close', () => session.destroy());
    // In its first tick Node hands the session what was put back on the socket. A session that is destroyed
    // before (a caller that waits for us may close at once) would throw there, where nobody can catch it.
    await new Promise<void>((resolve) => process.nextTick(resolve));
    return session;
  }

  #waitForSync(data: net.Socket, nonce: string, timeoutMs: number): Promise<void> {
    const wanted = Buffer.from(`SYNC ${nonce}\n`);
    return new Promise((resolve, reject) => {
      let kept: Buffer = Buffer.alloc(0);
      const finish = (error?: Error) => {
        clearTimeout(timer);
        data.off('data', onData);
        data.off('close', onClose);
        if (error) reject(error);
        else resolve();
      };
      const onClose = () => finish(new GuestUnreachableError('the data port was closed before SYNC'));
      const onData = (chunk: Buffer) => {
        kept = kept.length > 0 ? Buffer.concat([kept, chunk]) : chunk;
        const at = kept.indexOf(wanted);
        if (at >= 0) {
          this.skippedBytes += at;
          data.pause();
          const rest = kept.subarray(at + wanted.length);
          finish();
          if (rest.length > 0) data.unshift(rest);
          return;
        }
        // Only a tail shorter than the line we look for can still matter.
        const drop = kept.length - (wanted.length - 1);
        if (drop > 0) {
          this.skippedBytes += drop;
          kept = kept.subarray(drop);
        }
      };
      const timer = setTimeout(() => finish(new SyncTimeoutError()), timeoutMs);
      data.on('data', onData);
      data.once('close', onClose);
    });
  }
}

class SyncTimeoutError extends Error {
  override name = 'SyncTimeoutError';
}

function isSyncTimeout(error: unknown): boolean {
  return error instanceof SyncTimeoutError;
}

function openSocket(path: string, opened: net.Socket[]): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(path);
    opened.push(socket);
    // A socket that we destroy while it connects says neither 'connect' nor 'error'.
    const onClose = () => reject(new GuestUnreachableError('the connection to the guest was closed'));
    socket.once('connect', () => {
      socket.off('error', reject);
      socket.off('close', onClose);
      socket.on('error', () => {});
      resolve(socket);
    });
    socket.once('error', reject);
    socket.once('close', onClose);
  });
}

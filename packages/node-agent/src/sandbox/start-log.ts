/** The start command's output, followed into a file on the host, so that `logs` works after the machine's end. */
import { type FileHandle, open, readFile } from 'node:fs/promises';
import type { ExecEnd } from '@sandlot/protocol';
import type { GuestClient } from '../guest/guest-client.js';

/** Newest bytes that are kept. */
const keptBytes = 1024 * 1024;
const retryMs = 1_000;

/** Follows one start command until it ends or we are closed. */
export class StartLog {
  #closed = false;

  constructor(
    private readonly path: string,
    private readonly guest: GuestClient,
    private readonly onEnd: (end: ExecEnd) => void,
  ) {}

  /** Resolves when the command has ended or `close` was called. The guest replays what it kept, so the file begins anew with each attach. */
  async follow(): Promise<void> {
    while (!this.#closed) {
      try {
        if (await this.#followOnce()) return;
      } catch {
        // The guest is away for a moment (a reconnect) or for good (then we are closed).
      }
      await new Promise((resolve) => setTimeout(resolve, retryMs).unref());
    }
  }

  close(): void {
    this.#closed = true;
  }

  async #followOnce(): Promise<boolean> {
    const stream = await this.guest.attach('start-command');
    const file = await open(this.path, 'w+', 0o600);
    const writer = new RingFile(file);
    try {
      for await (const event of stream.events()) {
        if (this.#closed) return true;
        if (event.kind === 'end') {
          this.onEnd(event.end);
          return true;
        }
        if (event.kind !== 'start') await writer.write(event.data);
      }
      return false;
    } finally {
      await file.close();
    }
  }
}

/** Keeps between one and two times {@link keptBytes} of the newest bytes. */
class RingFile {
  #size = 0;

  constructor(private readonly file: FileHandle) {}

  async write(data: Buffer): Promise<void> {
    if (this.#size + data.length > 2 * keptBytes) {
      const tail = Buffer.alloc(Math.min(keptBytes, this.#size));
      const { bytesRead } = await this.file.read(tail, 0, tail.length, this.#size - tail.length);
      await this.file.truncate(0);
      await this.file.write(tail, 0, bytesRead, 0);
      this.#size = bytesRead;
    }
    await this.file.write(data, 0, data.length, this.#size);
    this.#size += data.length;
  }
}

/** Newest text of a start command's output; "" when there is none. */
export async function readStartLog(path: string, maxBytes = keptBytes): Promise<string> {
  const bytes = await readFile(path).catch(() => Buffer.alloc(0));
  return bytes.subarray(Math.max(0, bytes.length - maxBytes)).toString('utf8');
}

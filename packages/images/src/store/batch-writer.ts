/**
 * Writes a stream of small chunks into a file in large pieces, and takes the next chunks while a piece is being
 * written. Used by downloads and imports, where the network's chunks are a few KiB each.
 */
import type { FileHandle } from 'node:fs/promises';

/** Bytes of a piece; two of them are in memory at most. */
const PIECE = 1 << 20;

/** Appends to one file, from its beginning on. */
export class BatchWriter {
  private chunks: Uint8Array[] = [];
  private collected = 0;
  private position = 0;
  private running: Promise<unknown> = Promise.resolve();

  constructor(private readonly file: FileHandle) {}

  /** Takes a chunk, which must not be changed afterwards. Throws what an earlier write failed with. */
  async write(chunk: Uint8Array): Promise<void> {
    this.chunks.push(chunk);
    this.collected += chunk.length;
    if (this.collected >= PIECE) await this.startPiece();
  }

  /** Waits until everything is in the file. */
  async flush(): Promise<void> {
    await this.startPiece();
    await this.running;
  }

  /** Empties the file and begins anew. */
  async restart(): Promise<void> {
    await this.flush();
    await this.file.truncate(0);
    this.position = 0;
  }

  private async startPiece(): Promise<void> {
    const { chunks, position } = this;
    this.position += this.collected;
    this.chunks = [];
    this.collected = 0;
    await this.running;
    if (chunks.length === 0) return;
    this.running = writeAll(this.file, chunks, position);
    // A failure is thrown by whoever waits next.
    this.running.catch(() => undefined);
  }
}

async function writeAll(file: FileHandle, chunks: Uint8Array[], position: number): Promise<void> {
  const total = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  const { bytesWritten } = await file.writev(chunks, position);
  if (bytesWritten === total) return;
  // The kernel took a part only, as it may when the disk fills up: the rest says why.
  const rest = Buffer.concat(chunks).subarray(bytesWritten);
  for (let done = 0; done < rest.length; ) {
    done += (await file.write(rest, done, rest.length - done, position + bytesWritten + done)).bytesWritten;
  }
}

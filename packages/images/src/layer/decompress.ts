/**
 * Reads a file as uncompressed chunks: `gzip -dc` and `zstd -dc` do the work in a process of their own, as an
 * unprivileged user, reading the file by an inherited descriptor. Called by the layer reader and the importers.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { throwIfAborted } from '../fault.js';
import { type ChildUser, startChild } from '../process/child.js';
import { ImageError } from '../store.js';
import { DETECT_BYTES, detectCompression } from './compression.js';

const PLAIN_CHUNK = 256 * 1024;

/** What to read and how. */
export interface DecompressOptions {
  user: ChildUser | undefined;
  /** For messages, e.g. `layer sha256:…`. */
  what: string;
  /** More output than this is `too-large`: a decompression bomb. */
  maxBytes: number;
  signal?: AbortSignal | undefined;
}

/** The first bytes of a file. */
export async function readHead(file: FileHandle): Promise<Buffer> {
  const head = Buffer.alloc(DETECT_BYTES);
  let filled = 0;
  while (filled < head.length) {
    const { bytesRead } = await file.read(head, filled, head.length - filled, filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return head.subarray(0, filled);
}

/** Yields the uncompressed content. A plain chunk is only valid until the next one is asked for. */
export async function* decompress(file: FileHandle, options: DecompressOptions): AsyncGenerator<Buffer> {
  const compression = detectCompression(await readHead(file), options.what);
  const source =
    compression === 'plain' ? readPlain(file, options) : readThroughChild(file, compression, options);
  let total = 0;
  for await (const chunk of source) {
    total += chunk.length;
    if (total > options.maxBytes) {
      throw new ImageError(
        'too-large',
        `${options.what} unpacks to more than ${options.maxBytes} bytes, the limit here; it may be a decompression bomb`,
      );
    }
    yield chunk;
  }
}

async function* readPlain(file: FileHandle, options: DecompressOptions): AsyncGenerator<Buffer> {
  const buffer = Buffer.allocUnsafe(PLAIN_CHUNK);
  for (let position = 0; ; ) {
    throwIfAborted(options.signal, `reading ${options.what}`);
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

async function* readThroughChild(
  file: FileHandle,
  compression: 'gzip' | 'zstd',
  options: DecompressOptions,
): AsyncGenerator<Buffer> {
  const argv: [string, ...string[]] =
    // 2 GiB windows (`--long=31`) are allowed by the format; 128 MiB is what other tools accept and bounds memory.
    compression === 'gzip' ? ['gzip', '-dc'] : ['zstd', '-dc', '-q', '--no-progress', '--memory=128MB'];
  // Opened anew: the child reads on from the descriptor's position, and ours may be anywhere.
  const input = await open(`/proc/self/fd/${file.fd}`, 'r');
  const child = startChild({
    argv,
    user: options.user,
    stdio: [input.fd, 'pipe', 'pipe'],
    signal: options.signal,
  });
  try {
    yield* child.process.stdout as unknown as AsyncIterable<Buffer>;
    const { code, signal, stderr } = await child.exit;
    throwIfAborted(options.signal, `unpacking ${options.what}`);
    // gzip ends with 2 for warnings only, such as zeros behind the last member.
    if (code !== 0 && !(compression === 'gzip' && code === 2)) {
      throw unpackFailed(options.what, compression, stderr || `it ended with ${signal ?? `code ${code}`}`);
    }
  } finally {
    child.kill();
    await child.exit.catch(() => undefined);
    await input.close();
  }
}

function unpackFailed(what: string, compression: string, stderr: string): ImageError {
  const isTruncated = /unexpected end|premature|truncated/i.test(stderr);
  return new ImageError(
    isTruncated ? 'truncated' : 'invalid-layer',
    `${what} cannot be unpacked: ${compression} says "${stderr.split('\n')[0]}"; ${
      isTruncated ? 'the data ends too early' : 'the data is damaged'
    }, fetch it again`,
  );
}

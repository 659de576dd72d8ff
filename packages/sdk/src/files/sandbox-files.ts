/** Files of one sandbox: up, down, windows, folders, stat. Everything streams. Part of the Sandbox handle. */
import { randomUUID } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { SandlotError } from '../errors.js';
import type { GatewayClient } from '../gateway-client.js';
import type { CallOptions } from '../http/api-client.js';
import { readLimited } from '../http/read-limited.js';
import { multipartFile } from './multipart.js';
import type { SkipReport } from './pack-directory.js';

/** Options of a transfer. `timeoutMs` is the longest time in which nothing moves. */
export interface TransferOptions extends CallOptions {
  /** Called with the bytes moved so far. */
  onProgress?: ((doneBytes: number) => void) | undefined;
  /** Called for each entry of a folder that was left out. */
  onSkip?: SkipReport | undefined;
}

/** Answer of an upload. */
export interface UploadResult {
  path: string;
  /** Bytes of content written. */
  size: number;
}

/** A window of a file. */
export interface FileWindow {
  /** Text, invalid UTF-8 replaced. */
  content: string;
  /** Bytes in this window. */
  size: number;
  totalSize: number | undefined;
  offset: number | undefined;
  truncated: boolean;
}

/** What a path in the sandbox is. */
export interface SandboxFileStat {
  name: string;
  kind: 'file' | 'directory' | 'symlink' | 'other';
  size: number;
  mode: number;
  uid: number;
  gid: number;
  mtimeMs: number;
  target?: string | undefined;
}

/** Largest answer of `read-file`: 10 MiB of content, each byte at worst six characters of JSON. */
const readFileAnswerMaxBytes = 64 * 1024 * 1024;

/** File calls of a sandbox. */
export class SandboxFiles {
  constructor(
    private readonly sandboxId: string,
    private readonly gateway: GatewayClient,
  ) {}

  /** Uploads a local file. Missing folders are made. */
  async uploadFile(local: string, remote: string, options: TransferOptions = {}): Promise<UploadResult> {
    const size = (await statLocal(local)).size;
    return this.#upload(path.basename(local), remote, size, options, () =>
      // `end` keeps to the announced length when the file grows meanwhile.
      size === 0 ? emptyStream() : createReadStream(local, { end: size - 1, highWaterMark: 256 * 1024 }),
    );
  }

  /** Uploads bytes, or a stream that is read once. `length`, when known, is sent ahead. */
  async uploadStream(
    source: Uint8Array | AsyncIterable<Uint8Array>,
    remote: string,
    options: TransferOptions & { length?: number | undefined } = {},
  ): Promise<UploadResult> {
    if (source instanceof Uint8Array) {
      return this.#upload('data', remote, source.byteLength, options, async function* () {
        yield source;
      });
    }
    return this.#upload('data', remote, options.length, options, () => source, false);
  }

  /** Uploads a local folder's content below `remote`. */
  async uploadDirectory(local: string, remote: string, options: TransferOptions = {}): Promise<UploadResult> {
    const { packDirectory } = await import('./pack-directory.js');
    return this.#tarIn(remote, options, () => {
      let done = 0;
      return packDirectory(local, options.onSkip ?? (() => undefined), (bytes) => {
        done += bytes;
        options.onProgress?.(done);
      });
    });
  }

  /** Unpacks a tar stream below `remote`. */
  async uploadTar(
    source: AsyncIterable<Uint8Array>,
    remote: string,
    options: TransferOptions = {},
  ): Promise<UploadResult> {
    return this.#tarIn(remote, options, () => counted(source, options.onProgress), false);
  }

  /** Downloads a file; it appears at `local` only when it is complete. */
  async downloadFile(remote: string, local: string, options: TransferOptions = {}): Promise<number> {
    const source = await this.downloadStream(remote, options);
    // Into place by rename: a broken download leaves what was there before.
    const partial = path.join(
      path.dirname(local),
      `.${path.basename(local)}.${randomUUID().slice(0, 8)}.part`,
    );
    let size = 0;
    try {
      await pipeline(
        source,
        async function* (chunks: AsyncIterable<Uint8Array>) {
          for await (const chunk of chunks) {
            size += chunk.byteLength;
            yield chunk;
          }
        },
        createWriteStream(partial, { flags: 'wx' }),
      );
      await rename(partial, local);
      return size;
    } catch (cause) {
      await rm(partial, { force: true });
      if (cause instanceof SandlotError) throw cause;
      throw new SandlotError(
        `${local} cannot be written: ${cause instanceof Error ? cause.message : cause}`,
        {
          code: 'LOCAL_FILE',
          cause,
          hint: 'Check that its folder exists, may be written and has room.',
        },
      );
    }
  }

  /** The bytes of a file. */
  async downloadStream(remote: string, options: TransferOptions = {}): Promise<AsyncIterable<Uint8Array>> {
    const answer = await this.gateway.send(this.sandboxId, {
      method: 'GET',
      route: 'download',
      query: { path: remote, sandbox_id: this.sandboxId },
      ...options,
    });
    return counted(answer.body, options.onProgress);
  }

  /** Downloads a folder's content into a local folder. Nothing outside it is touched. */
  async downloadDirectory(remote: string, local: string, options: TransferOptions = {}): Promise<void> {
    const [source, { unpackDirectory }] = await Promise.all([
      this.downloadTar(remote, { ...options, onProgress: undefined }),
      import('./unpack-directory.js'),
    ]);
    let done = 0;
    await unpackDirectory(source, local, options.onSkip ?? (() => undefined), (bytes) => {
      done += bytes;
      options.onProgress?.(done);
    });
  }

  /** A tar stream of what `remote` names, names relative to it. */
  async downloadTar(remote: string, options: TransferOptions = {}): Promise<AsyncIterable<Uint8Array>> {
    const answer = await this.gateway.send(this.sandboxId, {
      method: 'GET',
      route: 'tar',
      query: { path: remote },
      ...options,
    });
    return counted(answer.body, options.onProgress);
  }

  /** A text file, or a window of it (`offset` below 0 counts from the end); 10 MiB at most. */
  async readFile(
    remote: string,
    options: CallOptions & { offset?: number | undefined; length?: number | undefined } = {},
  ): Promise<FileWindow> {
    const { offset, length, ...call } = options;
    const answer = await this.gateway.send(this.sandboxId, {
      method: 'GET',
      route: 'read-file',
      query: { path: remote, offset, length },
      ...call,
    });
    const body = await readJson<{
      content: string;
      size: number;
      total_size?: number;
      offset?: number;
      truncated?: boolean;
    }>(answer.body);
    return {
      content: body.content,
      size: body.size,
      totalSize: body.total_size,
      offset: body.offset,
      truncated: body.truncated ?? false,
    };
  }

  /** What `remote` is; a link is not followed. */
  async stat(remote: string, options: CallOptions = {}): Promise<SandboxFileStat> {
    const answer = await this.gateway.send(this.sandboxId, {
      method: 'GET',
      route: 'stat',
      query: { path: remote },
      ...options,
    });
    return readJson<SandboxFileStat>(answer.body);
  }

  async #upload(
    fileName: string,
    remote: string,
    length: number | undefined,
    options: TransferOptions,
    open: () => AsyncIterable<Uint8Array>,
    repeatable = true,
  ): Promise<UploadResult> {
    const body = multipartFile(fileName, length, () => counted(open(), options.onProgress));
    const answer = await this.gateway.send(this.sandboxId, {
      method: 'POST',
      route: 'upload',
      query: { path: remote, sandbox_id: this.sandboxId },
      headers: { 'content-type': body.contentType },
      body: () => body.open(),
      contentLength: body.contentLength,
      repeatable,
      signal: options.signal,
      timeoutMs: options.timeoutMs,
    });
    return readJson<UploadResult>(answer.body);
  }

  async #tarIn(
    remote: string,
    options: TransferOptions,
    open: () => AsyncIterable<Uint8Array>,
    repeatable = true,
  ): Promise<UploadResult> {
    const answer = await this.gateway.send(this.sandboxId, {
      method: 'PUT',
      route: 'tar',
      query: { path: remote },
      headers: { 'content-type': 'application/x-tar' },
      body: open,
      repeatable,
      signal: options.signal,
      timeoutMs: options.timeoutMs,
    });
    return readJson<UploadResult>(answer.body);
  }
}

async function statLocal(local: string) {
  try {
    const found = await stat(local);
    if (!found.isDirectory()) return found;
  } catch (cause) {
    throw new SandlotError(`${local} cannot be read: ${cause instanceof Error ? cause.message : cause}`, {
      code: 'LOCAL_FILE',
      cause,
    });
  }
  throw new SandlotError(`${local} is a folder; use uploadDirectory`, { code: 'LOCAL_FILE' });
}

async function readJson<T>(body: AsyncIterable<Uint8Array>): Promise<T> {
  return JSON.parse(new TextDecoder().decode(await readLimited(body, readFileAnswerMaxBytes))) as T;
}

async function* emptyStream(): AsyncGenerator<Uint8Array> {}

async function* counted(source: AsyncIterable<Uint8Array>, onProgress?: (doneBytes: number) => void) {
  if (!onProgress) {
    yield* source;
    return;
  }
  let done = 0;
  for await (const chunk of source) {
    done += chunk.byteLength;
    onProgress(done);
    yield chunk;
  }
}

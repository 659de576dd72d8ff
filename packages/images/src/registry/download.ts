/**
 * The transfer of one blob into a file: goes on where a broken connection stopped (Range), starts again where the
 * registry cannot do that, and gives up when several tries brought nothing new. Called by `pull-image.ts`.
 */
import { createHash, type Hash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { errnoOf } from '../fault.js';
import type { EarlyIndex } from '../layer/early-index.js';
import { BatchWriter } from '../store/batch-writer.js';
import { ImageError } from '../store.js';
import { readChunks } from './body.js';
import type { RegistryClient } from './registry-client.js';
import { backoffMs, pause, type RetryPolicy } from './retry.js';
import { describeNetworkError, type TransportResponse } from './transport.js';

/** However well it goes on, a transfer that breaks this often is not worth more. */
const MAX_BREAKS = 200;

/** What is transferred. */
export interface DownloadOptions {
  client: RegistryClient;
  digest: string;
  size: number;
  retry: RetryPolicy;
  signal: AbortSignal;
  /** Sees the bytes on their way. */
  index: EarlyIndex | undefined;
  /** Bytes since the last call; negative when a transfer starts again. */
  onBytes(bytes: number): void;
}

/** Writes the blob and answers the digest of what was written. */
export async function downloadBlob(file: FileHandle, options: DownloadOptions): Promise<string> {
  const download = new Download(file, options);
  let failures = 0;
  for (let breaks = 0; ; breaks++) {
    const before = download.highest;
    try {
      if (await download.attempt()) return download.digest();
      throw new ImageError(
        'truncated',
        `only ${download.position} of ${options.size} bytes of ${options.digest} came, several times over; the registry's copy is incomplete`,
      );
    } catch (error) {
      if (options.signal.aborted) {
        throw new ImageError('aborted', 'the pull was cancelled', { cause: error });
      }
      failures = download.highest > before ? 1 : failures + 1;
      const isFinal = !isBrokenTransfer(error) || failures >= options.retry.tries || breaks >= MAX_BREAKS;
      if (isFinal) throw asTransferError(error, options, download.position);
    }
    await pause(backoffMs(options.retry, failures), options.signal);
  }
}

class Download {
  position = 0;
  /** Most bytes that any attempt got to: what counts as progress. */
  highest = 0;
  private hash: Hash;
  private readonly algorithm: string;

  private readonly writer: BatchWriter;

  constructor(
    file: FileHandle,
    private readonly options: DownloadOptions,
  ) {
    this.writer = new BatchWriter(file);
    this.algorithm = options.digest.split(':')[0]!;
    this.hash = createHash(this.algorithm);
  }

  digest(): string {
    return `${this.algorithm}:${this.hash.digest('hex')}`;
  }

  /** One request; true if all bytes are there. */
  async attempt(): Promise<boolean> {
    const { client, digest, size, retry } = this.options;
    if (size === 0) return true;
    const response = await client.blob(digest, this.position);
    try {
      if (this.position > 0 && !continuesAt(response, this.position)) await this.restart();
      for await (const chunk of readChunks(response, retry.silenceMs)) {
        if (this.position + chunk.length > size) {
          throw new ImageError(
            'digest-mismatch',
            `more than the promised ${size} bytes came for ${digest}; the registry's copy is damaged`,
          );
        }
        this.hash.update(chunk);
        this.options.index?.write(chunk);
        await this.writer.write(chunk);
        this.position += chunk.length;
        this.highest = Math.max(this.highest, this.position);
        this.options.onBytes(chunk.length);
      }
      return this.position === size;
    } finally {
      response.cancel();
      await this.writer.flush();
    }
  }

  private async restart(): Promise<void> {
    this.options.onBytes(-this.position);
    this.position = 0;
    this.hash = createHash(this.algorithm);
    this.options.index?.restart();
    await this.writer.restart();
  }
}

/** A registry may ignore Range and send everything, with 200, or with 206 from another place. */
function continuesAt(response: TransportResponse, position: number): boolean {
  if (response.status !== 206) return false;
  const start = /^bytes ([0-9]+)-/.exec(response.header('content-range') ?? '')?.[1];
  return start !== undefined && Number(start) === position;
}

/** What the network did, not what our disk or the registry's answer says. */
function isBrokenTransfer(error: unknown): boolean {
  if (error instanceof ImageError) return error.code === 'truncated';
  const errno = errnoOf(error);
  return errno === undefined || !['ENOSPC', 'EDQUOT', 'EFBIG', 'EIO', 'EROFS'].includes(errno);
}

function asTransferError(error: unknown, options: DownloadOptions, position: number): unknown {
  if (error instanceof ImageError || !isBrokenTransfer(error)) return error;
  return new ImageError(
    'truncated',
    `the transfer of ${options.digest} broke off after ${position} of ${options.size} bytes, several times: ${describeNetworkError(error)}; try again when the network is better`,
    { cause: error },
  );
}

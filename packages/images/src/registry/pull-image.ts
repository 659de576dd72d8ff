/**
 * A pull: the registry as a source of content for `resolveImage`. Blobs that are here already, from whatever image,
 * are not fetched again. Called by the store.
 */
import { createHash } from 'node:crypto';
import { EarlyIndex, type EarlyIndexes } from '../layer/early-index.js';
import type { ImageLimits } from '../limits.js';
import type { Descriptor } from '../manifest/manifest.js';
import type { Platform } from '../manifest/platform.js';
import { canonicalReference, type ImageReference } from '../manifest/reference.js';
import { type ContentSource, type ResolvedImage, resolveImage } from '../manifest/resolve-image.js';
import type { BlobStore } from '../store/blob-store.js';
import type { SharedRun } from '../store/single-flight.js';
import { ImageError } from '../store.js';
import type { Credentials } from './authenticator.js';
import { downloadBlob } from './download.js';
import { RegistryClient } from './registry-client.js';
import type { RetryPolicy } from './retry.js';

/** What a pull needs of the store. */
export interface PullContext {
  blobs: BlobStore;
  limits: ImageLimits;
  platform: Platform;
  run: SharedRun;
  auth: Credentials | undefined;
  insecureRegistries: string[];
  retry: RetryPolicy;
  indexes: EarlyIndexes;
  /** Notes a digest as in use until the image is recorded. */
  pin(digest: string): void;
}

/** Pulls everything of one image. */
export async function pullImage(reference: ImageReference, context: PullContext): Promise<ResolvedImage> {
  const name = canonicalReference(reference);
  const { limits, run, auth, insecureRegistries, retry } = context;
  run.onProgress({ stage: 'resolve', doneBytes: 0, totalBytes: 0, message: name });
  const client = new RegistryClient(reference, {
    auth,
    insecureRegistries,
    retry,
    signal: run.signal,
    maxManifestBytes: limits.maxManifestBytes,
  });
  try {
    return await pullWith(client, reference, context);
  } catch (error) {
    // Below here messages name the registry, the reason and the remedy; the image is the same for all.
    if (!(error instanceof ImageError) || error.code === 'aborted') throw error;
    throw new ImageError(error.code, `${name} cannot be pulled: ${error.message}`, { cause: error });
  } finally {
    client.close();
  }
}

async function pullWith(
  client: RegistryClient,
  reference: ImageReference,
  context: PullContext,
): Promise<ResolvedImage> {
  const name = canonicalReference(reference);
  const { limits } = context;
  const { bytes, digest } = await client.manifest(reference.digest ?? reference.tag!);
  context.pin(digest);
  await context.blobs.put(bytes, digest);
  const top: Descriptor = {
    mediaType: '',
    digest,
    size: bytes.length,
    platform: undefined,
    annotations: {},
    artifactType: undefined,
  };
  return resolveImage(top, new RegistrySource(client, context), context.platform, limits, name);
}

class RegistrySource implements ContentSource {
  private doneBytes = 0;
  private totalBytes = 0;

  constructor(
    private readonly client: RegistryClient,
    private readonly context: PullContext,
  ) {}

  expect(bytes: number): void {
    this.totalBytes = bytes;
  }

  async small(descriptor: Descriptor): Promise<Buffer> {
    const { blobs, limits } = this.context;
    const { digest, size } = descriptor;
    if (size > limits.maxManifestBytes) {
      throw new ImageError('too-large', `${digest} has ${size} bytes, too many for a manifest or config`);
    }
    this.context.pin(digest);
    const here = await blobs.readSmall(digest);
    if (here && isContent(here, digest)) return here;
    if (/manifest|index/.test(descriptor.mediaType)) {
      const { bytes } = await this.client.manifest(digest);
      await blobs.put(bytes, digest);
      return bytes;
    }
    await this.fetch(descriptor, undefined, () => undefined);
    return (await blobs.readSmall(digest))!;
  }

  async layer(descriptor: Descriptor): Promise<void> {
    const { digest, size } = descriptor;
    if (size > this.context.limits.maxBlobBytes) {
      throw new ImageError('too-large', `the layer ${digest} has ${size} bytes, more than the limit here`);
    }
    this.context.pin(digest);
    let counted = 0;
    const index = new EarlyIndex(this.context.limits);
    await this.fetch(descriptor, index, (bytes) => {
      counted += bytes;
      this.report(bytes);
    });
    // Complete only if all bytes came past: a transfer of another pull shows us nothing.
    const entries = counted === size ? index.finish() : undefined;
    if (entries) this.context.indexes.keep(digest, entries);
    // What was here already, or came through another pull, counts as done too.
    this.report(size - counted);
  }

  private async fetch(
    descriptor: Descriptor,
    index: EarlyIndex | undefined,
    onBytes: (bytes: number) => void,
  ): Promise<void> {
    const { blobs, run, retry } = this.context;
    const { digest, size } = descriptor;
    for (;;) {
      try {
        await blobs.ensure(digest, size, { signal: run.signal }, (file, { signal }) =>
          downloadBlob(file, { client: this.client, digest, size, retry, signal, index, onBytes }),
        );
        return;
      } catch (error) {
        // Another pull was transferring it and was cancelled: ours goes on by itself.
        const isOthers = error instanceof ImageError && error.code === 'aborted' && !run.signal.aborted;
        if (!isOthers) throw error;
      }
    }
  }

  private report(bytes: number): void {
    this.doneBytes += bytes;
    const { doneBytes, totalBytes } = this;
    this.context.run.onProgress({ stage: 'download', doneBytes, totalBytes });
  }
}

function isContent(bytes: Buffer, digest: string): boolean {
  const [algorithm, hex] = digest.split(':');
  return createHash(algorithm!).update(bytes).digest('hex') === hex;
}

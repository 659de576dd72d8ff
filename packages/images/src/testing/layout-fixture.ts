/**
 * OCI image layouts made for tests and for images that we build ourselves: layers (bytes or files) and a
 * configuration go in, a folder that `importFolder`, `umoci` and the test registry read comes out.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { copyFile, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { MEDIA_TYPES } from '../manifest/manifest.js';
import { hostPlatform } from '../manifest/platform.js';
import { buildTar } from './tar-fixture.js';

/** A layer: an uncompressed tar, in memory or as a file, and how it is to be stored. */
export interface LayerFixture {
  tar: Buffer | string;
  /** `plain` if left out. A file is always stored plain. */
  compression?: 'plain' | 'gzip' | 'zstd';
  /** What the manifest calls it; what fits its compression if left out. */
  mediaType?: string;
  /** For tests of bad input: instead of the right one. */
  diffId?: string;
}

/** An image of a layout. */
export interface ImageFixture {
  layers: LayerFixture[];
  /** As in Docker's config: `Env`, `Cmd`, `User`, `Labels`, … */
  config?: Record<string, unknown>;
  /** Tag (or name) in the layout; `latest` if left out. */
  tag?: string;
  platform?: { os: string; architecture: string; variant?: string };
  /** Media types of Docker instead of OCI. */
  isDocker?: boolean;
}

/** Pointer to something in the layout. */
export interface FixtureDescriptor {
  mediaType: string;
  digest: string;
  size: number;
  platform?: { os: string; architecture: string; variant?: string };
  annotations?: Record<string, string>;
}

/** A layout folder that images are added to. */
export class LayoutFixture {
  private readonly manifests: FixtureDescriptor[] = [];

  private constructor(readonly folder: string) {}

  /** Makes the folder. */
  static async create(folder: string): Promise<LayoutFixture> {
    await mkdir(join(folder, 'blobs/sha256'), { recursive: true });
    await writeFile(join(folder, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}');
    const layout = new LayoutFixture(folder);
    await layout.writeIndex();
    return layout;
  }

  /** Stores an image and lists it under its tag; answers its manifest. */
  async addImage(image: ImageFixture): Promise<FixtureDescriptor> {
    const descriptor = await this.storeImage(image);
    await this.list(descriptor, image.tag ?? 'latest');
    return descriptor;
  }

  /** Stores an image without listing it, for an index of one's own. */
  async storeImage(image: ImageFixture): Promise<FixtureDescriptor> {
    const layers: FixtureDescriptor[] = [];
    const diffIds: string[] = [];
    for (const layer of image.layers) {
      const stored = await this.storeLayer(layer, image.isDocker === true);
      layers.push(stored.descriptor);
      diffIds.push(layer.diffId ?? stored.diffId);
    }
    const platform = image.platform ?? hostPlatform();
    const config = await this.putJson(
      { ...platform, config: image.config ?? {}, rootfs: { type: 'layers', diff_ids: diffIds } },
      image.isDocker ? 'application/vnd.docker.container.image.v1+json' : MEDIA_TYPES.ociConfig,
    );
    const mediaType = image.isDocker ? MEDIA_TYPES.dockerManifest : MEDIA_TYPES.ociManifest;
    const manifest = await this.putJson({ schemaVersion: 2, mediaType, config, layers }, mediaType);
    return { ...manifest, platform };
  }

  /** Stores an index of manifests, without listing it. */
  async storeIndex(manifests: FixtureDescriptor[]): Promise<FixtureDescriptor> {
    return this.putJson(
      { schemaVersion: 2, mediaType: MEDIA_TYPES.ociIndex, manifests },
      MEDIA_TYPES.ociIndex,
    );
  }

  /** Lists a manifest or index under a tag. */
  async list(descriptor: FixtureDescriptor, tag: string): Promise<void> {
    const annotations = { ...descriptor.annotations, 'org.opencontainers.image.ref.name': tag };
    this.manifests.push({ ...descriptor, annotations });
    await this.writeIndex();
  }

  /** Stores any bytes as a blob. */
  async put(bytes: Buffer, mediaType: string): Promise<FixtureDescriptor> {
    const hex = createHash('sha256').update(bytes).digest('hex');
    await writeFile(this.blobPath(`sha256:${hex}`), bytes);
    return { mediaType, digest: `sha256:${hex}`, size: bytes.length };
  }

  /** Where a blob lies, so that tests can damage it. */
  blobPath(digest: string): string {
    return join(this.folder, 'blobs', digest.replace(':', '/'));
  }

  private async storeLayer(
    layer: LayerFixture,
    isDocker: boolean,
  ): Promise<{ descriptor: FixtureDescriptor; diffId: string }> {
    if (typeof layer.tar === 'string') return this.storeLayerFile(layer.tar, layer.mediaType);
    const compression = layer.compression ?? 'plain';
    const suffix = compression === 'plain' ? '' : `+${compression}`;
    const mediaType =
      layer.mediaType ??
      (isDocker
        ? `application/vnd.docker.image.rootfs.diff.tar${compression === 'plain' ? '' : `.${compression}`}`
        : `${MEDIA_TYPES.ociLayer}${suffix}`);
    const descriptor = await this.put(compress(layer.tar, compression), mediaType);
    const diffId = `sha256:${createHash('sha256').update(layer.tar).digest('hex')}`;
    return { descriptor, diffId };
  }

  private async storeLayerFile(
    path: string,
    mediaType: string = MEDIA_TYPES.ociLayer,
  ): Promise<{ descriptor: FixtureDescriptor; diffId: string }> {
    const hash = createHash('sha256');
    for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
    const digest = `sha256:${hash.digest('hex')}`;
    await copyFile(path, this.blobPath(digest));
    return { descriptor: { mediaType, digest, size: (await stat(path)).size }, diffId: digest };
  }

  private async putJson(value: unknown, mediaType: string): Promise<FixtureDescriptor> {
    return this.put(Buffer.from(JSON.stringify(value)), mediaType);
  }

  private async writeIndex(): Promise<void> {
    const index = { schemaVersion: 2, mediaType: MEDIA_TYPES.ociIndex, manifests: this.manifests };
    await writeFile(join(this.folder, 'index.json'), JSON.stringify(index));
  }
}

/** Compresses as a layer would be. */
export function compress(bytes: Buffer, compression: 'plain' | 'gzip' | 'zstd'): Buffer {
  if (compression === 'plain') return bytes;
  if (compression === 'gzip') return gzipSync(bytes, { level: 1 });
  return execFileSync('zstd', ['-q', '-c', '-1'], { input: bytes, maxBuffer: 2 ** 30 });
}

/** The layout as one tar, as `importArchive` takes it. Small layouts only: it is made in memory. */
export async function tarOfLayout(layout: LayoutFixture): Promise<Buffer> {
  const names = ['oci-layout', 'index.json'];
  for (const hex of await readdir(join(layout.folder, 'blobs/sha256'))) names.push(`blobs/sha256/${hex}`);
  const entries = names.map(async (name) => ({ name, content: await readFile(join(layout.folder, name)) }));
  return buildTar(await Promise.all(entries));
}

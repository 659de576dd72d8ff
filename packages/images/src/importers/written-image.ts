/**
 * Makes an OCI manifest for archives that have none: docker-archives (config and plain layers) and root file
 * systems (nothing but files). The rest of the store then sees an image like any other. Called by the import.
 */
import { createHash, type Hash } from 'node:crypto';
import { open } from 'node:fs/promises';
import type { ImageLimits } from '../limits.js';
import { type Descriptor, MEDIA_TYPES } from '../manifest/manifest.js';
import type { Platform } from '../manifest/platform.js';
import type { BlobStore } from '../store/blob-store.js';
import type { StoreFiles } from '../store/files.js';
import { ImageError } from '../store.js';
import { isSameReference } from './layout-source.js';
import { type Member, type MemberFiles, readSmallMember } from './member-files.js';

/** What the two functions here need of the store. */
export interface WriteContext {
  blobs: BlobStore;
  files: StoreFiles;
  limits: ImageLimits;
  /** Notes a digest as in use before it is stored. */
  pin(digest: string): void;
}

interface DockerImage {
  Config: string;
  RepoTags: string[] | null;
  Layers: string[];
}

/** The images that `manifest.json` lists; undefined if that file is not Docker's. */
export async function readDockerManifest(
  members: MemberFiles,
  limits: ImageLimits,
): Promise<DockerImage[] | undefined> {
  const member = await members.find('manifest.json');
  if (!member || member.size > limits.maxManifestBytes) return undefined;
  let json: unknown;
  try {
    json = JSON.parse((await readSmallMember(member, limits.maxManifestBytes, 'manifest.json')).toString());
  } catch {
    // A root file system may well have a file of that name.
    return undefined;
  }
  const isDocker = (item: DockerImage | null) =>
    typeof item?.Config === 'string' &&
    Array.isArray(item.Layers) &&
    item.Layers.every((layer) => typeof layer === 'string');
  return Array.isArray(json) && json.length > 0 && json.every(isDocker) ? (json as DockerImage[]) : undefined;
}

/** Stores the image called `name`, or the only one, and answers its manifest. */
export async function storeDockerImage(
  images: DockerImage[],
  members: MemberFiles,
  name: string,
  context: WriteContext,
): Promise<Descriptor> {
  const image =
    images.length === 1
      ? images[0]!
      : images.find(({ RepoTags }) => RepoTags?.some((tag) => isSameReference(tag, name)));
  if (!image) {
    const tags = images.flatMap(({ RepoTags }) => RepoTags ?? []).slice(0, 10);
    throw new ImageError(
      'not-found',
      `the archive holds ${images.length} images (${tags.join(', ')}), and none of them is called ${name}; import it under the name of one`,
    );
  }
  if (image.Layers.length > context.limits.maxLayers) {
    throw new ImageError('too-large', `the image has more than ${context.limits.maxLayers} layers`);
  }
  const config = await need(members, image.Config);
  const configBytes = await readSmallMember(config, context.limits.maxManifestBytes, image.Config);
  const layers: { digest: string; size: number }[] = [];
  for (const path of image.Layers) layers.push(await storeMember(await need(members, path), path, context));
  return storeManifest(configBytes, layers, context);
}

/** Makes an image of one layer without any configuration. The layer is in the store already. */
export async function storeRootfsImage(
  layer: { digest: string; size: number },
  platform: Platform,
  context: WriteContext,
): Promise<Descriptor> {
  const config = {
    ...platform,
    config: {},
    rootfs: { type: 'layers', diff_ids: [layer.digest] },
  };
  return storeManifest(Buffer.from(JSON.stringify(config)), [layer], context);
}

async function storeManifest(
  config: Buffer,
  layers: { digest: string; size: number }[],
  context: WriteContext,
): Promise<Descriptor> {
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MEDIA_TYPES.ociManifest,
      config: { mediaType: MEDIA_TYPES.ociConfig, digest: digestOf(config), size: config.length },
      layers: layers.map((layer) => ({ mediaType: MEDIA_TYPES.ociLayer, ...layer })),
    }),
  );
  for (const bytes of [config, manifest]) {
    context.pin(digestOf(bytes));
    await context.blobs.put(bytes);
  }
  return {
    mediaType: MEDIA_TYPES.ociManifest,
    digest: digestOf(manifest),
    size: manifest.length,
    platform: undefined,
    annotations: {},
    artifactType: undefined,
  };
}

async function storeMember(
  member: Member,
  path: string,
  context: WriteContext,
): Promise<{ digest: string; size: number }> {
  const temporary = context.files.temporary('member');
  const hash: Hash = createHash('sha256');
  const file = await open(temporary, 'wx', 0o600);
  let size = 0;
  try {
    for await (const chunk of member.read()) {
      hash.update(chunk);
      size += chunk.length;
      await file.writeFile(chunk);
    }
  } finally {
    await file.close();
  }
  if (size !== member.size) throw new ImageError('truncated', `${path} in the archive is incomplete`);
  const digest = `sha256:${hash.digest('hex')}`;
  context.pin(digest);
  await context.blobs.adopt(temporary, digest);
  return { digest, size };
}

async function need(members: MemberFiles, path: string): Promise<Member> {
  const member = await members.find(path);
  if (member) return member;
  throw new ImageError(
    'truncated',
    `the archive lacks ${path}, which its manifest.json names; export it again`,
  );
}

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

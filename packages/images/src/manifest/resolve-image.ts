/**
 * From a name in a registry, or a descriptor in a layout, to everything of one image in the blob store: index,
 * nested index, platform choice, manifest, config, layers. Called by pull and by the importers, which differ only in
 * their {@link ContentSource}.
 */
import type { ImageLimits } from '../limits.js';
import { ImageError } from '../store.js';
import { type Descriptor, type Manifest, type ParsedConfig, parseConfig, parseManifest } from './manifest.js';
import { candidates, listPlatforms, type Platform } from './platform.js';

/** Where content comes from. Whatever it answers has been checked against its digest. */
export interface ContentSource {
  /** A manifest or config, small enough for memory; it is in the blob store afterwards. */
  small(descriptor: Descriptor): Promise<Buffer>;
  /** Sees to it that a layer is in the blob store. */
  layer(descriptor: Descriptor): Promise<void>;
  /** Told once, before the layers: how many bytes they have together. */
  expect?(bytes: number): void;
}

/** An image whose content is in the blob store. */
export interface ResolvedImage {
  digest: string;
  config: ParsedConfig;
  configDigest: string;
  /** In the order of the manifest. */
  layers: { digest: string; mediaType: string; size: number }[];
  /** All blobs that belong to it: indexes on the way, manifest, config, layers. */
  blobs: { digest: string; size: number }[];
}

/** Layers that are fetched at once. */
const PARALLEL_LAYERS = 3;

/** Resolves and fetches. `what` names the image in messages. */
export async function resolveImage(
  top: Descriptor,
  source: ContentSource,
  platform: Platform,
  limits: ImageLimits,
  what: string,
): Promise<ResolvedImage> {
  const blobs: { digest: string; size: number }[] = [];
  const found = await findManifest(top, source, platform, limits, what, 0, blobs);
  if (!found) {
    throw new ImageError(
      'wrong-platform',
      `${what} has no image for ${platform.os}/${platform.architecture}`,
    );
  }
  const { manifest, digest } = found;
  const config = await readConfig(manifest, source, platform, limits, what);
  blobs.push({ digest: manifest.config.digest, size: manifest.config.size });
  await fetchLayers(manifest.layers, source);
  const layers = manifest.layers.map(({ digest, mediaType, size }) => ({ digest, mediaType, size }));
  blobs.push(...layers.map(({ digest, size }) => ({ digest, size })));
  return { digest, config, configDigest: manifest.config.digest, layers, blobs };
}

async function findManifest(
  descriptor: Descriptor,
  source: ContentSource,
  platform: Platform,
  limits: ImageLimits,
  what: string,
  depth: number,
  blobs: { digest: string; size: number }[],
): Promise<{ manifest: Manifest; digest: string } | undefined> {
  if (depth > limits.maxIndexDepth) {
    throw new ImageError(
      'invalid-manifest',
      `${what} nests indexes more than ${limits.maxIndexDepth} levels deep, the limit here`,
    );
  }
  const bytes = await source.small(descriptor);
  const parsed = parseManifest(bytes, `the manifest ${descriptor.digest} of ${what}`);
  if (parsed.kind === 'manifest') {
    blobs.push({ digest: descriptor.digest, size: bytes.length });
    return { manifest: parsed, digest: descriptor.digest };
  }
  for (const candidate of candidates(parsed.manifests, platform).slice(0, 64)) {
    const before = blobs.length;
    blobs.push({ digest: descriptor.digest, size: bytes.length });
    const found = await findManifest(candidate, source, platform, limits, what, depth + 1, blobs);
    // An entry that states no platform is only known to fit by its config.
    if (found && (candidate.platform || (await fits(found.manifest, source, platform)))) return found;
    blobs.length = before;
  }
  if (depth > 0) return undefined;
  throw new ImageError(
    'wrong-platform',
    `${what} has no image for ${platform.os}/${platform.architecture}; it has: ${listPlatforms(parsed.manifests)}`,
  );
}

async function fits(manifest: Manifest, source: ContentSource, platform: Platform): Promise<boolean> {
  const config = parseConfig(await source.small(manifest.config), 'a config');
  return config.os === platform.os && config.architecture === platform.architecture;
}

async function readConfig(
  manifest: Manifest,
  source: ContentSource,
  platform: Platform,
  limits: ImageLimits,
  what: string,
): Promise<ParsedConfig> {
  if (manifest.layers.length > limits.maxLayers) {
    throw new ImageError(
      'too-large',
      `${what} has ${manifest.layers.length} layers, more than ${limits.maxLayers}`,
    );
  }
  const unusable = manifest.layers.find(({ mediaType }) => !isLayerType(mediaType));
  if (unusable) {
    throw new ImageError(
      'unsupported-media-type',
      `the layer ${unusable.digest} of ${what} is of type ${JSON.stringify(unusable.mediaType)}, which is not a file system layer`,
    );
  }
  const config = parseConfig(await source.small(manifest.config), `the config of ${what}`);
  const os = config.os || platform.os;
  const architecture = config.architecture || platform.architecture;
  if (os !== platform.os || architecture !== platform.architecture) {
    throw new ImageError(
      'wrong-platform',
      `${what} is built for ${os}/${architecture}, but sandboxes here run ${platform.os}/${platform.architecture}; use an image for that platform`,
    );
  }
  if (config.diffIds.length !== manifest.layers.length) {
    throw new ImageError(
      'invalid-manifest',
      `${what} has ${manifest.layers.length} layers, but its config lists ${config.diffIds.length} diff ids`,
    );
  }
  return { ...config, os, architecture };
}

/** Compression is told from the content, so only the kind of thing matters here. */
function isLayerType(mediaType: string): boolean {
  if (mediaType.includes('encrypted')) return false;
  return mediaType === '' || /layer|rootfs|tar/.test(mediaType);
}

async function fetchLayers(layers: Descriptor[], source: ContentSource): Promise<void> {
  // An image may list one layer twice.
  const todo = [...new Map(layers.map((layer) => [layer.digest, layer])).values()].reverse();
  source.expect?.(todo.reduce((sum, layer) => sum + layer.size, 0));
  let failed = false;
  const work = async () => {
    for (let layer = todo.pop(); layer && !failed; layer = todo.pop()) {
      try {
        await source.layer(layer);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const results = await Promise.allSettled(Array.from({ length: PARALLEL_LAYERS }, work));
  const failure = results.find((result) => result.status === 'rejected');
  if (failure) throw failure.reason;
}

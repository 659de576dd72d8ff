/**
 * Manifests, indexes and configs of OCI and Docker (schema 2), read and checked. Everything here is pure: bytes in,
 * typed values or `ImageError` out. Called by the resolver, which fetches them from a registry or a layout.
 */
import { type ImageConfig, ImageError } from '../store.js';
import { isDigest } from './reference.js';

/** A pointer to content. */
export interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
  platform: { os: string; architecture: string; variant: string | undefined } | undefined;
  annotations: Record<string, string>;
  artifactType: string | undefined;
}

/** An image manifest: one config, layers from the lowest up. */
export interface Manifest {
  kind: 'manifest';
  config: Descriptor;
  layers: Descriptor[];
}

/** A list of manifests or further lists. */
export interface Index {
  kind: 'index';
  manifests: Descriptor[];
}

/** The parts of an image's config that anything of ours uses. */
export interface ParsedConfig {
  config: ImageConfig;
  os: string;
  architecture: string;
  diffIds: string[];
}

/** Media types that a registry is asked for. */
export const MEDIA_TYPES = {
  ociIndex: 'application/vnd.oci.image.index.v1+json',
  ociManifest: 'application/vnd.oci.image.manifest.v1+json',
  ociConfig: 'application/vnd.oci.image.config.v1+json',
  ociLayer: 'application/vnd.oci.image.layer.v1.tar',
  dockerList: 'application/vnd.docker.distribution.manifest.list.v2+json',
  dockerManifest: 'application/vnd.docker.distribution.manifest.v2+json',
} as const;

/** Parses a manifest or an index; which of both is told from its content, its media type only helps. */
export function parseManifest(bytes: Buffer, what: string): Manifest | Index {
  const json = parseObject(bytes, what);
  if (json['schemaVersion'] === 1) {
    throw new ImageError(
      'unsupported-media-type',
      `${what} is a Docker schema 1 manifest, a form that was given up in 2017; push the image again with a current tool`,
    );
  }
  const mediaType = typeof json['mediaType'] === 'string' ? json['mediaType'] : '';
  const isIndex = mediaType === MEDIA_TYPES.ociIndex || mediaType === MEDIA_TYPES.dockerList;
  if (isIndex || (Array.isArray(json['manifests']) && !('layers' in json))) {
    return { kind: 'index', manifests: descriptorList(json['manifests'], what) };
  }
  if (!json['config'] || !Array.isArray(json['layers'])) {
    throw invalid(what, 'it has neither "manifests" nor "config" and "layers"');
  }
  const config = parseDescriptor(json['config'], what);
  if (!/image\.config|container\.image/.test(config.mediaType)) {
    throw new ImageError(
      'unsupported-media-type',
      `${what} is not a container image: its config is of type ${JSON.stringify(config.mediaType)}`,
    );
  }
  return { kind: 'manifest', config, layers: descriptorList(json['layers'], what) };
}

/** Parses an image's config. */
export function parseConfig(bytes: Buffer, what: string): ParsedConfig {
  const json = parseObject(bytes, what);
  const inner = isObject(json['config']) ? json['config'] : {};
  const rootfs = isObject(json['rootfs']) ? json['rootfs'] : {};
  const diffIds = strings(rootfs['diff_ids']);
  const bad = diffIds.find((id) => !isDigest(id));
  if (bad !== undefined)
    throw invalid(what, `the diff id ${JSON.stringify(bad.slice(0, 100))} is not a digest`);
  return {
    config: {
      env: strings(inner['Env']),
      user: text(inner['User']),
      workingDir: text(inner['WorkingDir']),
      // Very old configs have one string where a list belongs.
      entrypoint: strings(inner['Entrypoint']),
      cmd: strings(inner['Cmd']),
      exposedPorts: isObject(inner['ExposedPorts']) ? Object.keys(inner['ExposedPorts']) : [],
      labels: stringMap(inner['Labels']),
    },
    os: text(json['os']),
    architecture: text(json['architecture']),
    diffIds,
  };
}

function descriptorList(value: unknown, what: string): Descriptor[] {
  if (!Array.isArray(value)) throw invalid(what, 'its list of content is missing');
  return value.map((item) => parseDescriptor(item, what));
}

/** Parses one descriptor; used for the `index.json` of layouts too. */
export function parseDescriptor(value: unknown, what: string): Descriptor {
  if (!isObject(value)) throw invalid(what, 'a descriptor in it is not an object');
  const digest = text(value['digest']);
  const size = value['size'];
  if (!isDigest(digest))
    throw invalid(what, `the digest ${JSON.stringify(digest.slice(0, 100))} is not valid`);
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) {
    throw invalid(what, `the size of ${digest} is not a number`);
  }
  const platform = isObject(value['platform']) ? value['platform'] : undefined;
  return {
    mediaType: text(value['mediaType']),
    digest,
    size,
    platform: platform && {
      os: text(platform['os']),
      architecture: text(platform['architecture']),
      variant: text(platform['variant']) || undefined,
    },
    annotations: stringMap(value['annotations']),
    artifactType: text(value['artifactType']) || undefined,
  };
}

function parseObject(bytes: Buffer, what: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw new ImageError('invalid-manifest', `${what} is not JSON: ${(cause as Error).message}`, { cause });
  }
  if (!isObject(value)) throw invalid(what, 'it is not a JSON object');
  return value;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function strings(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  return Array.isArray(value) ? value.filter((item): item is string => typeof item === 'string') : [];
}

function stringMap(value: unknown): Record<string, string> {
  if (!isObject(value)) return {};
  return Object.fromEntries(
    Object.entries(value).filter((pair): pair is [string, string] => typeof pair[1] === 'string'),
  );
}

function invalid(what: string, why: string): ImageError {
  return new ImageError('invalid-manifest', `${what} is not valid: ${why}`);
}

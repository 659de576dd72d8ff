/**
 * What the node agent sees of images: a reference goes in, a held rootfs file comes out. See
 * `ImageStore.acquire`. The class that implements this is made by `openImageStore`.
 */

import type { ImageErrorCode } from '@sandlot/protocol';

/** Docker's image configuration, the part that a machine needs. */
export interface ImageConfig {
  env: string[];
  user: string;
  workingDir: string;
  entrypoint: string[];
  cmd: string[];
  exposedPorts: string[];
  labels: Record<string, string>;
}

/** An image in the store. */
export interface StoredImage {
  /** Canonical reference, e.g. `docker.io/library/python:3.11-slim`. */
  reference: string;
  /** Digest of its manifest. */
  digest: string;
  config: ImageConfig;
  platform: { os: string; architecture: string };
  layers: { digest: string; mediaType: string; size: number }[];
  /** Bytes of the rootfs file on disk, 0 before it is built. */
  rootfsBytes: number;
  createdAt: string;
}

/** Progress of a pull, an import or a build. */
export interface StoreProgress {
  stage: 'resolve' | 'download' | 'read' | 'build' | 'finish';
  doneBytes: number;
  totalBytes: number;
  message?: string;
}

/** A rootfs that stays while it is held. */
export interface RootfsHold {
  image: StoredImage;
  /** Absolute path of the read-only ext4 file (mode 0444); `fitDisk` makes a disk of it. */
  path: string;
}

/** Options of a pull. */
export interface PullOptions {
  signal?: AbortSignal;
  onProgress?: (progress: StoreProgress) => void;
  auth?: { username: string; password: string };
}

/** Content and rootfs files by digest, with holds. Every method may be called concurrently. */
export interface ImageStore {
  /** Makes sure the image is here and its rootfs is built, and holds it for `holder` (a sandbox id) until `release(holder)`. A hold outlives the process. Concurrent requests for one image do one pull and one build. A reference that is here already is not looked up again, unless it is pulled. Throws {@link ImageError}. */
  acquire(reference: string, holder: string, options?: PullOptions): Promise<RootfsHold>;
  /** Builds the rootfs of an image that is here, so that the next `acquire` only answers. Throws {@link ImageError}. */
  prepare(reference: string, options?: PullOptions): Promise<void>;
  /** True if `acquire` would answer from what is here. */
  isReady(reference: string): Promise<boolean>;
  /** Holds for `holder` the same rootfs as `other` does, whatever its name means by now. Throws {@link ImageError} `not-found` when that holds none. */
  share(other: string, holder: string): Promise<void>;
  /** Drops the hold. Unknown holders are fine. */
  release(holder: string): Promise<void>;
  /** Names of all holders, for reconciling after a restart. */
  holders(): Promise<string[]>;
  /** Asks the registry again and stores what the name means now. */
  pull(reference: string, options?: PullOptions): Promise<StoredImage>;
  /** A docker-archive, an OCI layout tar, or a rootfs tar, each plain or compressed. `name` becomes its reference. */
  importArchive(
    archive: AsyncIterable<Uint8Array>,
    name: string,
    options?: PullOptions,
  ): Promise<StoredImage>;
  /** An OCI layout folder on this host. */
  importFolder(folder: string, name: string, options?: PullOptions): Promise<StoredImage>;
  list(): Promise<(StoredImage & { holders: number; contentBytes: number })[]>;
  /** By reference, digest or unique digest prefix; undefined if unknown. */
  get(reference: string): Promise<(StoredImage & { holders: number; contentBytes: number }) | undefined>;
  /** Throws `ImageError('in-use')` while held. */
  remove(reference: string): Promise<void>;
  /** Removes every image that no holder uses, and content that no image uses. */
  prune(): Promise<{ removed: string[]; freedBytes: number }>;
  close(): Promise<void>;
}

/** An image could not be had. `message` says what failed, why, and what to do. */
export class ImageError extends Error {
  override name = 'ImageError';
  constructor(
    readonly code: ImageErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

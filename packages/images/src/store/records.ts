/**
 * What the store writes down: images by manifest digest, names that point to them, and holds. All in small JSON
 * files; memory is only a copy of them. Used by the store and the collector.
 */
import { rm } from 'node:fs/promises';
import type { ImageConfig, StoredImage } from '../store.js';
import type { StoreFiles } from './files.js';
import { rootfsKeyOf } from './rootfs-key.js';

/** One image. */
export interface ImageRecord {
  /** Digest of the manifest. */
  digest: string;
  /** The name under which it came. */
  reference: string;
  config: ImageConfig;
  platform: { os: string; architecture: string };
  layers: { digest: string; mediaType: string; size: number }[];
  diffIds: string[];
  /** Everything in `blobs/` that belongs to it. */
  blobs: { digest: string; size: number }[];
  /** Name of its rootfs file, whether it is built or not. */
  rootfsKey: string;
  createdAt: string;
}

/** A name. */
export interface RefRecord {
  reference: string;
  digest: string;
}

/** A built file system. */
export interface RootfsRecord {
  key: string;
  sizeBytes: number;
  entries: number;
  diffIds: string[];
  builtAt: string;
}

/** Who uses what. */
export interface HoldRecord {
  holder: string;
  reference: string;
  digest: string;
  rootfsKey: string;
  since: string;
}

/** Records of one store, read once when it is opened. Every change is on disk before it shows here. */
export class Records {
  readonly images = new Map<string, ImageRecord>();
  readonly refs = new Map<string, RefRecord>();
  readonly holds = new Map<string, HoldRecord>();

  constructor(private readonly files: StoreFiles) {}

  async load(): Promise<void> {
    for (const image of await this.files.readAllJson<ImageRecord>('images')) {
      // An older version of us built it in another way; what runs holds the old file by its own name.
      this.images.set(image.digest, { ...image, rootfsKey: rootfsKeyOf(image.diffIds) });
    }
    for (const ref of await this.files.readAllJson<RefRecord>('refs')) {
      if (this.images.has(ref.digest)) this.refs.set(ref.reference, ref);
      else await rm(this.files.ref(ref.reference), { force: true });
    }
    for (const hold of await this.files.readAllJson<HoldRecord>('holds')) this.holds.set(hold.holder, hold);
  }

  /** The image first, then the name: a crash between them leaves an image without a name, which `prune` removes. */
  async saveImage(image: ImageRecord, reference: string): Promise<void> {
    await this.files.writeJson(this.files.image(image.digest), image);
    this.images.set(image.digest, image);
    const ref = { reference, digest: image.digest };
    await this.files.writeJson(this.files.ref(reference), ref);
    this.refs.set(reference, ref);
  }

  async removeRef(reference: string): Promise<void> {
    await rm(this.files.ref(reference), { force: true });
    this.refs.delete(reference);
  }

  async removeImage(digest: string): Promise<void> {
    await rm(this.files.image(digest), { force: true });
    this.images.delete(digest);
  }

  async saveHold(hold: HoldRecord): Promise<void> {
    await this.files.writeJson(this.files.hold(hold.holder), hold);
    this.holds.set(hold.holder, hold);
  }

  async removeHold(holder: string): Promise<void> {
    await rm(this.files.hold(holder), { force: true });
    this.holds.delete(holder);
  }

  holdersOf(digest: string): number {
    let count = 0;
    for (const hold of this.holds.values()) if (hold.digest === digest) count++;
    return count;
  }

  refsOf(digest: string): RefRecord[] {
    return [...this.refs.values()].filter((ref) => ref.digest === digest);
  }
}

/** The public form of a record. */
export function toStoredImage(image: ImageRecord, reference: string, rootfsBytes: number): StoredImage {
  const { digest, config, platform, layers, createdAt } = image;
  return { reference, digest, config, platform, layers, rootfsBytes, createdAt };
}

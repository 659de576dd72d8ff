/**
 * The image store as a whole: `openImageStore` makes it, the node agent owns it. References and imports come in,
 * rootfs files that are held go out. The parts: `registry/` and `importers/` bring content, `manifest/` reads it,
 * `rootfs/` builds, `store/` keeps files and records.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { chmod } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { toImageError } from './fault.js';
import { type ImportContext, importArchiveImage, importFolderImage } from './importers/import-image.js';
import { EarlyIndexes } from './layer/early-index.js';
import { DEFAULT_LIMITS, type ImageLimits } from './limits.js';
import { hostPlatform, type Platform } from './manifest/platform.js';
import { canonicalReference, parseReference } from './manifest/reference.js';
import type { ResolvedImage } from './manifest/resolve-image.js';
import type { ChildUser } from './process/child.js';
import { pullImage } from './registry/pull-image.js';
import { DEFAULT_RETRY, type RetryPolicy } from './registry/retry.js';
import { BlobStore } from './store/blob-store.js';
import { type Collectable, crossCheck, isInUse, pruneAll, sweep } from './store/collector.js';
import { StoreFiles } from './store/files.js';
import { Mutex } from './store/mutex.js';
import { type ImageRecord, Records, toStoredImage } from './store/records.js';
import { rootfsKeyOf } from './store/rootfs-key.js';
import { RootfsStore } from './store/rootfs-store.js';
import { type SharedRun, SingleFlight } from './store/single-flight.js';
import { lockStore } from './store/store-lock.js';
import { ImageError, type ImageStore, type PullOptions, type RootfsHold, type StoredImage } from './store.js';

/** Options of {@link openImageStore}. */
export interface ImageStoreOptions {
  /** Folder of the store; made if missing. One process at a time may have it open. */
  root: string;
  /** User of the children that touch bytes of images; our own if not given. Needs root. */
  runChildrenAs?: ChildUser;
  limits?: Partial<ImageLimits>;
  /** `host` or `host:port` of registries that may be spoken to without TLS. Loopback always may. */
  insecureRegistries?: string[];
  /** How patient pulls are. */
  retry?: Partial<RetryPolicy>;
  /** What the guests are; the host's processor with Linux if not given. */
  platform?: Platform;
}

/** Opens a store: takes its lock, sweeps what a crash left, and checks records against files. */
export async function openImageStore(options: ImageStoreOptions): Promise<ImageStore> {
  const files = new StoreFiles(resolve(options.root));
  try {
    await files.prepare();
    const unlock = await lockStore(files.root);
    try {
      const store = new FileImageStore(files, options, unlock);
      await store.load();
      return store;
    } catch (error) {
      await unlock();
      throw error;
    }
  } catch (error) {
    throw toImageError(error, `opening the image store ${files.root}`);
  }
}

/** An image as `list` and `get` show it. */
type ListedImage = StoredImage & { holders: number; contentBytes: number };

/** A digest or its beginning, as `image ls` shows them. */
const DIGEST_START = /^(?:sha256:)?([0-9a-f]{6,64})$/;

/** Tries of `acquire` when an image is removed between its pull and its hold. */
const MAX_ACQUIRE_TRIES = 3;

class FileImageStore implements ImageStore {
  private readonly limits: ImageLimits;
  private readonly platform: Platform;
  private readonly user: ChildUser | undefined;
  private readonly records: Records;
  private readonly blobs: BlobStore;
  private readonly rootfs: RootfsStore;
  private readonly fetches = new SingleFlight<ImageRecord>();
  /** Tells logins apart without keeping them: of this process only. */
  private readonly loginKey = randomBytes(32);
  private readonly indexes = new EarlyIndexes();
  private readonly mutex = new Mutex();
  /** What the collector works on. */
  private readonly parts: Collectable;
  private isClosed = false;

  constructor(
    private readonly files: StoreFiles,
    private readonly options: ImageStoreOptions,
    private readonly unlock: () => Promise<void>,
  ) {
    this.limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.platform = options.platform ?? hostPlatform();
    this.user = options.runChildrenAs;
    this.records = new Records(files);
    this.blobs = new BlobStore(files);
    this.rootfs = new RootfsStore(files, this.indexes, this.limits, this.user);
    this.parts = { files, records: this.records, blobs: this.blobs, rootfs: this.rootfs };
  }

  async load(): Promise<void> {
    // Children and machines of other users reach files below by their path.
    await chmod(this.files.root, 0o755);
    await chmod(join(this.files.root, 'rootfs'), 0o755);
    await this.records.load();
    await crossCheck(this.parts);
  }

  async acquire(reference: string, holder: string, options: PullOptions = {}): Promise<RootfsHold> {
    this.checkOpen();
    const name = canonicalReference(parseReference(reference));
    for (let tries = 1; ; tries++) {
      const image = this.find(name) ?? (await this.fetch(name, options));
      // From here to the hold the image cannot be removed; no await stands between finding and pinning it.
      const unpin = this.blobs.pin(image.digest);
      try {
        if (!this.records.images.has(image.digest) && tries < MAX_ACQUIRE_TRIES) continue;
        await this.buildOrRefetch(image, name, options);
        return await this.mutex.run(() => this.hold(image, name, holder));
      } catch (error) {
        throw toImageError(error, `preparing ${name}`);
      } finally {
        unpin();
      }
    }
  }

  async prepare(reference: string, options: PullOptions = {}): Promise<void> {
    this.checkOpen();
    const name = canonicalReference(parseReference(reference));
    const image = this.find(name);
    if (!image)
      throw new ImageError(
        'not-found',
        `there is no image ${reference} here; \`sandlot image ls\` lists them`,
      );
    const unpin = this.blobs.pin(image.digest);
    try {
      await this.buildOrRefetch(image, name, options);
    } catch (error) {
      throw toImageError(error, `preparing ${name}`);
    } finally {
      unpin();
    }
  }

  async isReady(reference: string): Promise<boolean> {
    const image = this.lookup(reference);
    return image !== undefined && (await this.rootfs.find(image.rootfsKey)) !== undefined;
  }

  async share(other: string, holder: string): Promise<void> {
    this.checkOpen();
    await this.mutex.run(async () => {
      const held = this.records.holds.get(other);
      if (!held) throw new ImageError('not-found', `${other} holds no image that ${holder} could share`);
      await this.records.saveHold({ ...held, holder, since: new Date().toISOString() });
    });
  }

  async release(holder: string): Promise<void> {
    await this.mutex.run(async () => {
      if (this.records.holds.has(holder)) await this.records.removeHold(holder);
    });
  }

  async holders(): Promise<string[]> {
    return [...this.records.holds.keys()];
  }

  async pull(reference: string, options: PullOptions = {}): Promise<StoredImage> {
    this.checkOpen();
    const image = await this.fetch(canonicalReference(parseReference(reference)), options);
    return this.show(image, canonicalReference(parseReference(reference)));
  }

  async importArchive(
    archive: AsyncIterable<Uint8Array>,
    name: string,
    options: PullOptions = {},
  ): Promise<StoredImage> {
    return this.importWith(name, options, (context) => importArchiveImage(archive, name, context));
  }

  async importFolder(folder: string, name: string, options: PullOptions = {}): Promise<StoredImage> {
    return this.importWith(name, options, (context) => importFolderImage(resolve(folder), name, context));
  }

  async list(): Promise<ListedImage[]> {
    const result: ListedImage[] = [];
    for (const image of this.records.images.values()) {
      const refs = this.records.refsOf(image.digest);
      // A name that moved on leaves an image that can only be called by digest.
      const names = refs.length > 0 ? refs.map((ref) => ref.reference) : [withoutTag(image)];
      for (const name of names) result.push(await this.showWithUse(image, name));
    }
    return result.sort((a, b) => (a.reference < b.reference ? -1 : 1));
  }

  async get(reference: string): Promise<ListedImage | undefined> {
    const image = this.lookup(reference);
    if (!image) return undefined;
    const name = this.nameIn(image, reference);
    return this.showWithUse(image, name);
  }

  async remove(reference: string): Promise<void> {
    await this.mutex.run(async () => {
      const image = this.lookup(reference);
      if (!image) {
        throw new ImageError(
          'not-found',
          `there is no image ${reference} here; \`sandlot image ls\` lists them`,
        );
      }
      const refs = this.records.refsOf(image.digest).map((ref) => ref.reference);
      const name = this.nameIn(image, reference);
      const isLastName = refs.length <= 1 || !refs.includes(name);
      if (isLastName && isInUse(image, this.parts)) {
        throw new ImageError('in-use', `${name} ${useOf(this.records.holdersOf(image.digest))}`);
      }
      for (const ref of isLastName ? refs : [name]) await this.records.removeRef(ref);
      if (isLastName) await this.records.removeImage(image.digest);
      await sweep(this.parts);
    });
  }

  async prune(): Promise<{ removed: string[]; freedBytes: number }> {
    return this.mutex.run(() => pruneAll(this.parts));
  }

  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    await Promise.all([this.fetches.close(), this.rootfs.close(), this.blobs.close()]);
    await this.mutex.run(async () => undefined);
    await this.unlock();
  }

  /** Asks the registry. Concurrent calls with one login for one name are one pull: what one may not see, another may. */
  private async fetch(name: string, options: PullOptions): Promise<ImageRecord> {
    const key = options.auth ? `${name} as ${this.loginHash(options.auth)}` : name;
    return this.fetches.run(key, options, (run) =>
      this.record(name, run, (context) =>
        pullImage(parseReference(name), {
          ...context,
          indexes: this.indexes,
          auth: options.auth,
          insecureRegistries: this.options.insecureRegistries ?? [],
          retry: { ...DEFAULT_RETRY, ...this.options.retry },
        }),
      ),
    );
  }

  private loginHash({ username, password }: NonNullable<PullOptions['auth']>): string {
    return createHmac('sha256', this.loginKey)
      .update(JSON.stringify([username, password]))
      .digest('hex');
  }

  private async importWith(
    name: string,
    options: PullOptions,
    bring: (context: ImportContext) => Promise<ResolvedImage>,
  ): Promise<StoredImage> {
    this.checkOpen();
    const canonical = canonicalReference(parseReference(name));
    if (canonical.includes('@')) {
      throw new ImageError('invalid-reference', `an import needs a name and tag, not the digest in ${name}`);
    }
    // Every import is a run of its own: two of one name are two different archives.
    const key = `import ${this.files.temporary(canonical)}`;
    const image = await this.fetches.run(key, options, (run) => this.record(canonical, run, bring));
    return this.show(image, canonical);
  }

  /** Brings content in while it is pinned, then writes the record that keeps it. */
  private async record(
    name: string,
    run: SharedRun,
    bring: (context: ImportContext) => Promise<ResolvedImage>,
  ): Promise<ImageRecord> {
    const unpins: (() => void)[] = [];
    const { blobs, files, limits, platform, user } = this;
    const pin = (digest: string) => void unpins.push(blobs.pin(digest));
    try {
      const found = await bring({ blobs, files, limits, platform, user, run, pin });
      const image: ImageRecord = {
        digest: found.digest,
        reference: name,
        config: found.config.config,
        platform: { os: found.config.os, architecture: found.config.architecture },
        layers: found.layers,
        diffIds: found.config.diffIds,
        blobs: found.blobs,
        rootfsKey: rootfsKeyOf(found.config.diffIds),
        createdAt: new Date().toISOString(),
      };
      await this.mutex.run(() => this.records.saveImage(image, name));
      return image;
    } catch (error) {
      throw toImageError(error, `getting ${name}`);
    } finally {
      for (const unpin of unpins) unpin();
    }
  }

  /** An image whose layers were lost although its record is here is fetched once more. */
  private async buildOrRefetch(image: ImageRecord, name: string, options: PullOptions): Promise<void> {
    const unpins = image.blobs.map((blob) => this.blobs.pin(blob.digest));
    try {
      if (!(await this.rootfs.find(image.rootfsKey))) {
        for (const layer of image.layers) {
          if (await this.blobs.has(layer.digest, layer.size)) continue;
          await this.fetch(name, options);
          break;
        }
      }
      await this.rootfs.ensure(image, options);
    } finally {
      for (const unpin of unpins) unpin();
    }
  }

  private async hold(image: ImageRecord, name: string, holder: string): Promise<RootfsHold> {
    const found = await this.rootfs.find(image.rootfsKey);
    if (!found) {
      throw new ImageError(
        'build-failed',
        `the root file system of ${name} vanished after its build; try again`,
      );
    }
    const since = new Date().toISOString();
    const { digest, rootfsKey } = image;
    await this.records.saveHold({ holder, reference: name, digest, rootfsKey, since });
    return {
      image: toStoredImage(image, name, found.diskBytes),
      path: this.files.rootfs(rootfsKey),
    };
  }

  /** By canonical name; a digest reference also finds an image that came under another name. */
  private find(name: string): ImageRecord | undefined {
    const ref = this.records.refs.get(name);
    if (ref) return this.records.images.get(ref.digest);
    const at = name.indexOf('@');
    return at === -1 ? undefined : this.records.images.get(name.slice(at + 1));
  }

  /** As users call images: by name, by digest, or by the beginning of a digest if it is unique. */
  private lookup(reference: string): ImageRecord | undefined {
    const named = reference.startsWith('sha256:') ? undefined : this.byName(reference);
    const hex = DIGEST_START.exec(reference)?.[1];
    if (named || hex === undefined) return named;
    const found = [...this.records.images.values()].filter(({ digest }) =>
      digest.startsWith(`sha256:${hex}`),
    );
    return found.length === 1 ? found[0] : undefined;
  }

  private byName(reference: string): ImageRecord | undefined {
    return this.find(canonicalReference(parseReference(reference)));
  }

  /** The name of an image that the user meant, or its first. */
  private nameIn(image: ImageRecord, reference: string): string {
    const refs = this.records.refsOf(image.digest).map((ref) => ref.reference);
    const asked = reference.startsWith('sha256:') ? '' : canonicalReference(parseReference(reference));
    return refs.find((name) => name === asked) ?? refs[0] ?? withoutTag(image);
  }

  private async show(image: ImageRecord, name: string): Promise<StoredImage> {
    const found = await this.rootfs.find(image.rootfsKey);
    return toStoredImage(image, name, found?.diskBytes ?? 0);
  }

  private async showWithUse(image: ImageRecord, name: string): Promise<ListedImage> {
    return {
      ...(await this.show(image, name)),
      holders: this.records.holdersOf(image.digest),
      contentBytes: image.blobs.reduce((sum, blob) => sum + blob.size, 0),
    };
  }

  private checkOpen(): void {
    if (this.isClosed) throw new ImageError('aborted', 'the image store is closed');
  }
}

function useOf(holders: number): string {
  if (holders === 0) return 'is being pulled or built; try again when that is done';
  return holders === 1
    ? 'is used by 1 sandbox; remove it first'
    : `is used by ${holders} sandboxes; remove them first`;
}

function withoutTag(image: ImageRecord): string {
  const { registry, repository } = parseReference(image.reference);
  return canonicalReference({ registry, repository, tag: undefined, digest: image.digest });
}

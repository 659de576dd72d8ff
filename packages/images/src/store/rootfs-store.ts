/**
 * Built root file systems by key, where the key is a hash of all that the build depends on: images with the same
 * layers share one file. Builds run once at a time per key, and a few at most on a host. Used by the store.
 */
import { rm, stat } from 'node:fs/promises';
import { toImageError } from '../fault.js';
import type { EarlyIndexes } from '../layer/early-index.js';
import type { ImageLimits } from '../limits.js';
import type { ChildUser } from '../process/child.js';
import { buildRootfs } from '../rootfs/build-rootfs.js';
import type { StoreFiles } from './files.js';
import type { ImageRecord, RootfsRecord } from './records.js';
import { type Caller, type SharedRun, SingleFlight } from './single-flight.js';
import { Slots } from './slots.js';

/** Builds that run at once: each keeps one core busy and needs the disk. */
const PARALLEL_BUILDS = 2;

/** See the file's head. */
export class RootfsStore {
  private readonly flights = new SingleFlight<void>();
  private readonly slots = new Slots(PARALLEL_BUILDS);
  private readonly building = new Set<string>();

  constructor(
    private readonly files: StoreFiles,
    private readonly indexes: EarlyIndexes,
    private readonly limits: ImageLimits,
    private readonly user: ChildUser | undefined,
  ) {}

  /** Bytes on disk; undefined if it is not built. */
  async find(key: string): Promise<{ diskBytes: number } | undefined> {
    const found = await stat(this.files.rootfs(key)).catch(() => undefined);
    return found && { diskBytes: found.blocks * 512 };
  }

  /** True while a build of it runs. */
  isBuilding(key: string): boolean {
    return this.building.has(key);
  }

  /** Builds it if it is missing. The caller keeps the image's blobs pinned. */
  async ensure(image: ImageRecord, caller: Caller): Promise<void> {
    const key = image.rootfsKey;
    if (await this.find(key)) return;
    await this.flights.run(key, caller, async (run) => {
      if (await this.find(key)) return;
      this.building.add(key);
      try {
        const leave = await this.slots.enter(run.signal);
        await this.build(image, run).finally(leave);
      } catch (error) {
        throw toImageError(error, `building the root file system of ${image.reference}`);
      } finally {
        this.building.delete(key);
      }
    });
  }

  private async build(image: ImageRecord, run: SharedRun): Promise<void> {
    const key = image.rootfsKey;
    const folder = await this.files.temporaryFolder('build');
    try {
      const layers = image.layers.map((layer, index) => ({
        blobPath: this.files.blob(layer.digest),
        digest: layer.digest,
        diffId: image.diffIds[index]!,
        entries: this.indexes.find(layer.digest),
      }));
      const { limits, user } = this;
      const built = await buildRootfs({ layers, folder, limits, user, ...run });
      run.onProgress({ stage: 'finish', doneBytes: 0, totalBytes: 0 });
      const { sizeBytes, entries } = built;
      const { diffIds } = image;
      const record: RootfsRecord = { key, sizeBytes, entries, diffIds, builtAt: new Date().toISOString() };
      // The file comes last: where it is, everything is.
      await this.files.writeJson(this.files.rootfsInfo(key), record);
      await this.files.publish(built.path, this.files.rootfs(key));
    } finally {
      for (const layer of image.layers) this.indexes.forget(layer.digest);
      await rm(folder, { recursive: true, force: true });
    }
  }

  /** Removes it and answers the bytes that it had on disk. */
  async remove(key: string): Promise<number> {
    const found = await this.find(key);
    await rm(this.files.rootfs(key), { force: true });
    await rm(this.files.rootfsInfo(key), { force: true });
    return found?.diskBytes ?? 0;
  }

  /** Ends running builds. */
  async close(): Promise<void> {
    await this.flights.close();
  }
}

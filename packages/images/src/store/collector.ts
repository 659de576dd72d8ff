/**
 * Removal of images, and of content that no image needs any more. Nothing here decides by itself whether something
 * is in use: holds, pins and running builds do. Every function runs inside the store's mutex.
 */
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { BlobStore } from './blob-store.js';
import type { StoreFiles } from './files.js';
import type { ImageRecord, Records } from './records.js';
import type { RootfsStore } from './rootfs-store.js';

/** What the collector works on. */
export interface Collectable {
  files: StoreFiles;
  records: Records;
  blobs: BlobStore;
  rootfs: RootfsStore;
}

/** True if a holder, a pull or a build needs the image. */
export function isInUse(image: ImageRecord, { records, blobs, rootfs }: Collectable): boolean {
  if (blobs.isPinned(image.digest) || rootfs.isBuilding(image.rootfsKey)) return true;
  for (const hold of records.holds.values()) {
    if (hold.digest === image.digest || hold.rootfsKey === image.rootfsKey) return true;
  }
  return false;
}

/** Removes images that nobody uses, names and all; then whatever is left over. */
export async function pruneAll(store: Collectable): Promise<{ removed: string[]; freedBytes: number }> {
  const removed: string[] = [];
  for (const image of [...store.records.images.values()]) {
    if (isInUse(image, store)) continue;
    const refs = store.records.refsOf(image.digest);
    for (const ref of refs) await store.records.removeRef(ref.reference);
    await store.records.removeImage(image.digest);
    removed.push(...(refs.length > 0 ? refs.map((ref) => ref.reference) : [image.digest]));
  }
  return { removed, freedBytes: await sweep(store) };
}

/** Removes blobs and root file systems that no record, hold or running operation names; answers the bytes freed. */
export async function sweep(store: Collectable): Promise<number> {
  const { files, records, blobs, rootfs } = store;
  const liveBlobs = new Set<string>();
  const liveRootfs = new Set<string>();
  for (const image of records.images.values()) {
    liveRootfs.add(image.rootfsKey);
    for (const blob of image.blobs) liveBlobs.add(blob.digest);
  }
  for (const hold of records.holds.values()) liveRootfs.add(hold.rootfsKey);
  let freed = 0;
  for (const algorithm of ['sha256', 'sha512']) {
    for (const hex of await readdir(join(files.root, 'blobs', algorithm))) {
      const digest = `${algorithm}:${hex}`;
      if (liveBlobs.has(digest) || blobs.isPinned(digest)) continue;
      freed += await bytesOf(files.blob(digest));
      await blobs.remove(digest);
    }
  }
  for (const name of await readdir(join(files.root, 'rootfs'))) {
    const key = name.replace(/\.(ext4|json)$/, '');
    if (liveRootfs.has(key) || rootfs.isBuilding(key)) continue;
    freed += await rootfs.remove(key);
    await rm(join(files.root, 'rootfs', name), { force: true });
  }
  return freed;
}

/**
 * Once at start: forgets work that a crash cut off, and images whose content is not what the record says, so that
 * the next use fetches them again. An image whose rootfs is built stays usable without its layers.
 */
export async function crossCheck(store: Collectable): Promise<void> {
  const { files, records, rootfs } = store;
  const temporary = join(files.root, 'tmp');
  for (const name of await readdir(temporary)) {
    await rm(join(temporary, name), { recursive: true, force: true });
  }
  for (const image of [...records.images.values()]) {
    const isBuilt = (await rootfs.find(image.rootfsKey)) !== undefined;
    let isComplete = true;
    for (const { digest, size } of image.blobs) {
      const found = await stat(files.blob(digest)).catch(() => undefined);
      if (found?.size === size) continue;
      isComplete = false;
      await store.blobs.remove(digest);
    }
    if (isComplete || isBuilt) continue;
    for (const ref of records.refsOf(image.digest)) await records.removeRef(ref.reference);
    await records.removeImage(image.digest);
  }
  await sweep(store);
}

async function bytesOf(path: string): Promise<number> {
  const found = await stat(path).catch(() => undefined);
  return found ? found.blocks * 512 : 0;
}

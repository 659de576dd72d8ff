/**
 * From the layers of an image to one ext4 file: read every layer once (entries, digests, uncompressed bytes), merge
 * the tree in memory, stream it into mke2fs, repair with debugfs, check, sync. The caller (the store) gives a
 * private folder, renames the result into place and removes the folder whatever happens.
 */
import { constants } from 'node:fs';
import { chmod, type FileHandle, open, statfs } from 'node:fs/promises';
import { throwIfAborted, toImageError } from '../fault.js';
import { unpackLayer } from '../layer/unpacked-layer.js';
import type { ImageLimits } from '../limits.js';
import { applyEntry, type MergeTotals } from '../merge/apply-entry.js';
import { ImageTree } from '../merge/tree.js';
import type { ChildUser } from '../process/child.js';
import { ImageError, type StoreProgress } from '../store.js';
import type { TarEntry } from '../tar/tar-entry.js';
import { ContentReader } from './content-reader.js';
import { TreeEmitter } from './emit-tree.js';
import { checkMke2fs, MKE2FS_CONFIG, startMke2fs } from './make-filesystem.js';
import { BLOCK_SIZE, planRootfs } from './plan.js';
import { SecondPass } from './second-pass.js';

/** Input of a build. */
export interface BuildOptions {
  layers: { blobPath: string; digest: string; diffId: string; entries?: TarEntry[] | undefined }[];
  /** An empty folder that only this build uses. The result is `rootfs.ext4` in it. */
  folder: string;
  limits: ImageLimits;
  user: ChildUser | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: StoreProgress) => void) | undefined;
}

/** Output of a build. */
export interface BuildResult {
  path: string;
  sizeBytes: number;
  entries: number;
}

/** Builds; throws `ImageError`. */
export async function buildRootfs(options: BuildOptions): Promise<BuildResult> {
  const layers: FileHandle[] = [];
  try {
    const tree = new ImageTree();
    const totals = await readLayers(options, tree, layers);
    const result = await writeFilesystem(options, tree, layers);
    return { ...result, entries: totals.entries };
  } catch (error) {
    throw toImageError(error, 'building the root file system');
  } finally {
    for (const layer of layers) await layer.close().catch(() => undefined);
  }
}

async function readLayers(
  options: BuildOptions,
  tree: ImageTree,
  layers: FileHandle[],
): Promise<MergeTotals> {
  const totals: MergeTotals = { entries: 0, bytes: 0 };
  const { limits, user, signal } = options;
  let doneBytes = 0;
  for (const [index, layer] of options.layers.entries()) {
    throwIfAborted(signal, 'reading layers');
    const file = await unpackLayer({
      blobPath: layer.blobPath,
      digest: layer.digest,
      diffId: layer.diffId,
      entries: layer.entries,
      temporaryPath: `${options.folder}/layer-${index}.tar`,
      limits,
      user,
      signal,
      onEntry: (entry) => applyEntry(tree, entry, index, totals, limits),
      onBytes: (bytes) => {
        doneBytes += bytes;
        options.onProgress?.({ stage: 'read', doneBytes, totalBytes: 0 });
      },
    });
    layers.push(file);
    tree.endLayer();
  }
  return totals;
}

async function writeFilesystem(
  options: BuildOptions,
  tree: ImageTree,
  layers: FileHandle[],
): Promise<{ path: string; sizeBytes: number }> {
  const { folder, user, signal } = options;
  const plan = planRootfs(tree);
  await refuseIfFull(folder, plan.contentBytes);
  const path = `${folder}/rootfs.ext4`;
  const image = await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600);
  const config = await openConfig(folder);
  const secondPass = await SecondPass.create(folder);
  try {
    await image.truncate(plan.blocks * BLOCK_SIZE);
    if (user) await image.chown(user.uid, user.gid);
    const mke2fs = startMke2fs(image, config, plan, user, signal);
    let doneBytes = 0;
    const emitter = new TreeEmitter(
      tree,
      new ContentReader(layers),
      mke2fs.process.stdin!,
      secondPass,
      (bytes) => {
        doneBytes += bytes;
        options.onProgress?.({ stage: 'build', doneBytes, totalBytes: plan.contentBytes });
      },
    );
    await feed(mke2fs, emitter, signal);
    await emitter.ledger.check(image);
    await secondPass.run(image, user, signal);
    throwIfAborted(signal, 'building the root file system');
    if (user) await image.chown(process.getuid!(), process.getgid!());
    await chmod(path, 0o444);
    await image.datasync();
    const { size } = await image.stat();
    return { path, sizeBytes: size };
  } finally {
    await secondPass.close();
    await config.close();
    await image.close();
  }
}

/** Writes the stream; when mke2fs gives up early, its own message is the error, not our broken pipe. */
async function feed(
  mke2fs: ReturnType<typeof startMke2fs>,
  emitter: TreeEmitter,
  signal: AbortSignal | undefined,
): Promise<void> {
  mke2fs.process.stdin!.on('error', () => undefined);
  try {
    await emitter.run();
  } catch (error) {
    const isOurs = (error as NodeJS.ErrnoException).code !== 'EPIPE' && !signal?.aborted;
    if (isOurs) mke2fs.kill();
    const result = await mke2fs.exit;
    throwIfAborted(signal, 'building the root file system');
    if (!isOurs) checkMke2fs(result);
    throw error;
  }
  const result = await mke2fs.exit;
  throwIfAborted(signal, 'building the root file system');
  checkMke2fs(result);
}

async function openConfig(folder: string): Promise<FileHandle> {
  const config = await open(`${folder}/mke2fs.conf`, 'wx+', 0o644);
  await config.writeFile(MKE2FS_CONFIG);
  // Whatever our umask is: another user's mke2fs reads it.
  await config.chmod(0o644);
  return config;
}

/** A build that cannot fit says so before it has filled the disk for everybody else. */
async function refuseIfFull(folder: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize >= bytes) return;
  throw new ImageError(
    'no-space',
    `the root file system needs about ${Math.ceil(bytes / 2 ** 20)} MiB, and the image store has ${Math.floor((bavail * bsize) / 2 ** 20)} MiB left; free some space or run \`image prune\`, then try again`,
  );
}

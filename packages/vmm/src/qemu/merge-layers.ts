/**
 * Makes one layer of several that lie directly on each other: a new qcow2 that holds for each cluster what the highest of
 * them holds. Called by the QEMU driver. No machine takes part: layers never change, so they can be read while machines
 * stand on them, and the new file is of use only when all of it is there.
 *
 * Not qemu-img, which would read as root what a guest may have written, follow file names in it, and need a
 * process; `qemu-img check` and `compare` read the result in the tests.
 */
import { constants } from 'node:fs';
import { type FileHandle, open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type MergedLayer, type MergeRequest, VmmError } from '../driver.js';
import { snapshotPaths } from '../snapshot-files.js';
import { syncToDisk } from '../sync-to-disk.js';
import { emptyFolder } from '../template-files.js';
import { clustersPerTable, elsewhere, FrozenLayer, zeroes } from './frozen-layer.js';
import {
  clusterBytes,
  encodeHeader,
  nonZeroRuns,
  onlyUser,
  refcountsPerCluster,
  writeAll,
} from './overlay.js';
import { share } from './save-snapshot.js';

/** Bytes that are copied at once: between two pieces everything else has its turn. */
const pieceBytes = 1024 * 1024;
const zeroEntry = 1n;

/** Merges. Throws {@link VmmError}; the folder is empty then. */
export async function mergeLayers(request: MergeRequest, signal: AbortSignal): Promise<MergedLayer> {
  const { folder, layers: paths } = request;
  const { disk } = snapshotPaths(folder);
  const layers: FrozenLayer[] = [];
  let target: FileHandle | undefined;
  try {
    for (const path of paths) layers.push(await FrozenLayer.open(path));
    const sizeBytes = layers[0]?.sizeBytes ?? 0;
    if (layers.some((layer) => layer.sizeBytes !== sizeBytes))
      throw new VmmError('disk-failed', 'the layers are of disks of different sizes');
    target = await open(`${disk}.new`, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600);
    const bytes = await new Merge(layers, target, request, signal).run();
    await target.datasync();
    await rename(`${disk}.new`, disk);
    await share(request);
    await syncToDisk(folder);
    await syncToDisk(dirname(folder));
    return { bytes };
  } catch (error) {
    await emptyFolder(folder);
    throw asMergeError(signal.aborted ? signal.reason : error, signal.aborted);
  } finally {
    await target?.close();
    for (const layer of layers) await layer.close();
  }
}

/** One merge under way. The file grows at its end; its header, which makes it a qcow2, is written last. */
class Merge {
  readonly #l1: Buffer;
  /** Where the next cluster goes. */
  #end: number;
  #bytes = 0;

  constructor(
    private readonly layers: readonly FrozenLayer[],
    private readonly target: FileHandle,
    private readonly request: MergeRequest,
    private readonly signal: AbortSignal,
  ) {
    const l1Bytes = (layers[0]?.tables ?? 0) * 8;
    this.#l1 = Buffer.alloc(Math.ceil(l1Bytes / clusterBytes) * clusterBytes);
    this.#end = clusterBytes + this.#l1.length;
  }

  /** Resolves with the bytes of content that were copied. */
  async run(): Promise<number> {
    const { layers } = this;
    for (let table = 0; table < (layers[0]?.tables ?? 0); table++) {
      this.signal.throwIfAborted();
      const places = new Float64Array(clustersPerTable).fill(elsewhere);
      const sources = new Uint8Array(clustersPerTable);
      for (let at = layers.length - 1; at >= 0; at--)
        await (layers[at] as FrozenLayer).placeClusters(table, places, sources, at);
      if (places.some((place) => place !== elsewhere)) await this.#writeTable(table, places, sources);
    }
    await this.#finish();
    return this.#bytes;
  }

  async #writeTable(table: number, places: Float64Array, sources: Uint8Array): Promise<void> {
    const entries = Buffer.alloc(clusterBytes);
    for (let cluster = 0; cluster < clustersPerTable; ) {
      const place = places[cluster] as number;
      if (place === elsewhere || place === zeroes) {
        if (place === zeroes) entries.writeBigUInt64BE(zeroEntry, cluster * 8);
        cluster++;
        continue;
      }
      let count = 1;
      while (
        count * clusterBytes < pieceBytes &&
        cluster + count < clustersPerTable &&
        sources[cluster + count] === sources[cluster] &&
        places[cluster + count] === place + count * clusterBytes
      )
        count++;
      const layer = this.layers[sources[cluster] as number] as FrozenLayer;
      const at = await this.#copy(layer, place, count * clusterBytes);
      for (let i = 0; i < count; i++)
        entries.writeBigUInt64BE(onlyUser | BigInt(at + i * clusterBytes), (cluster + i) * 8);
      cluster += count;
    }
    const at = await this.#append(entries);
    this.#l1.writeBigUInt64BE(onlyUser | BigInt(at), table * 8);
  }

  async #copy(layer: FrozenLayer, from: number, length: number): Promise<number> {
    // What lies behind the end of a file is zeroes, as for QEMU.
    const piece = Buffer.alloc(length);
    for (let done = 0; done < length; ) {
      const { bytesRead } = await layer.file.read(piece, done, length - done, from + done);
      if (bytesRead === 0) break;
      done += bytesRead;
    }
    const at = await this.#append(piece);
    this.#bytes += length;
    await this.request.pace?.(length);
    this.signal.throwIfAborted();
    return at;
  }

  async #append(content: Buffer): Promise<number> {
    const at = this.#end;
    for (const [from, to] of nonZeroRuns(content)) await writeAll(this.target, content, from, to, at);
    this.#end += content.length;
    return at;
  }

  /** Counts of users of each cluster (one), then the tables of what there is, then the header. */
  async #finish(): Promise<void> {
    const used = this.#end / clusterBytes;
    let blocks = 0;
    let tables = 0;
    for (let before = -1; before !== blocks + tables; ) {
      before = blocks + tables;
      blocks = Math.ceil((used + blocks + tables) / refcountsPerCluster);
      tables = Math.ceil((blocks * 8) / clusterBytes);
    }
    const table = Buffer.alloc(tables * clusterBytes);
    const tableAt = this.#end + blocks * clusterBytes;
    let left = used + blocks + tables;
    for (let block = 0; block < blocks; block++) {
      const counts = Buffer.alloc(clusterBytes);
      const here = Math.min(left, refcountsPerCluster);
      for (let i = 0; i < here; i++) counts.writeUInt16BE(1, i * 2);
      left -= here;
      table.writeBigUInt64BE(BigInt(await this.#append(counts)), block * 8);
    }
    await this.#append(table);
    await this.target.truncate(this.#end);
    await writeAll(this.target, this.#l1, 0, this.#l1.length, clusterBytes);
    const header = encodeHeader({
      sizeBytes: this.layers[0]?.sizeBytes ?? 0,
      l1At: clusterBytes,
      refcountTableAt: tableAt,
      refcountTableClusters: tables,
    });
    await writeAll(this.target, header, 0, header.length, 0);
  }
}

function asMergeError(error: unknown, aborted: boolean): unknown {
  if (error instanceof VmmError) return error;
  const { code, message } = error as NodeJS.ErrnoException;
  const full = code === 'ENOSPC' || code === 'EDQUOT';
  return new VmmError(
    aborted ? 'aborted' : full ? 'no-space' : 'disk-failed',
    `layers could not be merged: ${message}`,
    { cause: error },
  );
}

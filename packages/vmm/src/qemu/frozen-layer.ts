/**
 * Reads the tables of a qcow2 that nobody writes to any more: which clusters of the disk it holds, and where. Used by
 * `merge-layers.ts`. A machine that was broken into may have written anything into its disk: only what an overlay of
 * ours can be is read, every number is checked, and no other file is ever opened for it.
 * Format: https://www.qemu.org/docs/master/interop/qcow2.html
 */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { VmmError } from '../driver.js';
import { bytesPerL1Entry, clusterBits, clusterBytes, qcow2Magic } from './overlay.js';

/** Where the content of a cluster is. */
export type ClusterPlace =
  /** Below this layer. */
  | typeof elsewhere
  /** It is all zeroes. */
  | typeof zeroes
  /** At this offset of the file, which is a positive number. */
  | number;

/** The layer says nothing of the cluster. */
export const elsewhere = -1;
/** The layer says that it is empty. */
export const zeroes = 0;

/** Entries of a second-level table: clusters of the disk that it tells of. */
export const clustersPerTable = clusterBytes / 8;

const headerBytes = 104;
const entryOffsetHigh = 0x00ff_ffff;
const compressedHigh = 0x4000_0000;
const isZero = 1;

/** One layer, open for reading. */
export class FrozenLayer {
  private constructor(
    readonly path: string,
    readonly file: FileHandle,
    /** Size of the disk. */
    readonly sizeBytes: number,
    private readonly l1: Buffer,
  ) {}

  /** Opens it. Throws {@link VmmError} `disk-failed` for what is no overlay of ours. */
  static async open(path: string): Promise<FrozenLayer> {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const stat = await file.stat();
      const header = Buffer.alloc(headerBytes);
      await file.read(header, 0, headerBytes, 0);
      const sizeBytes = Number(header.readBigUInt64BE(24));
      const l1Entries = header.readUInt32BE(36);
      const l1At = Number(header.readBigUInt64BE(40));
      const isOurs =
        stat.isFile() &&
        header.readUInt32BE(0) === qcow2Magic &&
        header.readUInt32BE(4) === 3 &&
        header.readUInt32BE(20) === clusterBits &&
        header.readUInt32BE(32) === 0 && // not encrypted
        header.readUInt32BE(60) === 0 && // no snapshots inside
        header.readBigUInt64BE(72) === 0n && // nothing that a reader must know of
        Number.isSafeInteger(sizeBytes) &&
        sizeBytes % 512 === 0 &&
        l1Entries === Math.ceil(sizeBytes / bytesPerL1Entry) &&
        l1At % clusterBytes === 0 &&
        l1At + l1Entries * 8 <= stat.size;
      if (!isOurs) throw refused(path, 'it is no disk that Sandlot made');
      const l1 = Buffer.alloc(l1Entries * 8);
      await file.read(l1, 0, l1.length, l1At);
      return new FrozenLayer(path, file, sizeBytes, l1);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Second-level tables of the whole disk. */
  get tables(): number {
    return this.l1.length / 8;
  }

  /** Fills in where it holds the clusters of this table, for those that are {@link elsewhere} still. */
  async placeClusters(table: number, places: Float64Array, source: Uint8Array, self: number): Promise<void> {
    const at = this.#offsetOf(this.l1, table * 8);
    if (at === 0) return;
    const entries = Buffer.alloc(clusterBytes);
    const { bytesRead } = await this.file.read(entries, 0, clusterBytes, at);
    if (bytesRead !== clusterBytes) throw refused(this.path, 'a table of it is cut short');
    for (let cluster = 0; cluster < clustersPerTable; cluster++) {
      if (places[cluster] !== elsewhere) continue;
      const offset = this.#offsetOf(entries, cluster * 8);
      const zero = (entries.readUInt32BE(cluster * 8 + 4) & isZero) !== 0;
      if (!zero && offset === 0) continue;
      places[cluster] = zero ? zeroes : offset;
      source[cluster] = self;
    }
  }

  close(): Promise<void> {
    return this.file.close();
  }

  #offsetOf(table: Buffer, at: number): number {
    const high = table.readUInt32BE(at);
    if ((high & compressedHigh) !== 0) throw refused(this.path, 'a cluster of it is compressed');
    const offset = (high & entryOffsetHigh) * 2 ** 32 + ((table.readUInt32BE(at + 4) & ~0x1ff) >>> 0);
    if (offset % clusterBytes !== 0) throw refused(this.path, 'an entry of its tables is damaged');
    return offset;
  }
}

function refused(path: string, why: string): VmmError {
  return new VmmError('disk-failed', `the layer ${path} cannot be merged: ${why}`);
}

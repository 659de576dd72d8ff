/**
 * Makes the private disk of a machine: a qcow2 over a read-only file, empty but for the first
 * bytes if they are given. Written here and not by `qemu-img`, because a few clusters of zeroes and
 * numbers are not worth a process in the path of every start. `qemu-img check` reads it in the tests.
 * Format: https://www.qemu.org/docs/master/interop/qcow2.html
 */
import { type FileHandle, open } from 'node:fs/promises';
import { VmmError } from '../driver.js';

/** Clusters of all our disks are of one size. */
export const clusterBits = 16;
/** The same in bytes. */
export const clusterBytes = 1 << clusterBits;
/** 'QFI' 0xfb */
export const qcow2Magic = 0x514649fb;
/** Counts of users in one cluster: 16 bits each. */
export const refcountsPerCluster = clusterBytes / 2;
const headerBytes = 104;
/** The host's disk is written in blocks of this size. */
const blockBytes = 4096;
const backingFormatExtension = 0xe2792aca;
/** Bytes that one cluster of the second-level table maps: 8,192 entries of a cluster each. */
export const bytesPerL1Entry = (clusterBytes / 8) * clusterBytes;
/** In a table's entry: the cluster's refcount is one, so it may be written in place. */
export const onlyUser = 1n << 63n;
/** Longest name of a backing file that the format allows. */
const maxBackingName = 1023;

/** What an overlay is made of. */
export interface OverlaySpec {
  /** Absolute path of the file below. */
  backingPath: string;
  /** Its format; `raw` unless said. */
  backingFormat?: 'raw' | 'qcow2';
  /** Size the guest sees: a multiple of 512. */
  sizeBytes: number;
  /** What the disk begins with instead of the file below: one cluster (64 KiB). */
  head?: Uint8Array;
}

/** The whole content of the overlay. Pure. Throws {@link VmmError} `disk-failed` for what the format cannot say. */
export function encodeOverlay(spec: OverlaySpec): Buffer {
  const name = Buffer.from(spec.backingPath);
  if (name.length > maxBackingName) {
    throw new VmmError('disk-failed', `the path of the rootfs is longer than ${maxBackingName} bytes`);
  }
  if (!Number.isSafeInteger(spec.sizeBytes) || spec.sizeBytes <= 0 || spec.sizeBytes % 512 !== 0) {
    throw new VmmError('disk-failed', `a disk cannot have ${spec.sizeBytes} bytes: not a multiple of 512`);
  }
  if (spec.head && spec.head.length !== clusterBytes) {
    throw new VmmError(
      'disk-failed',
      `the head of a disk has ${spec.head.length} bytes, not ${clusterBytes}`,
    );
  }
  const l1Entries = Math.ceil(spec.sizeBytes / bytesPerL1Entry);
  const l1Clusters = Math.ceil((l1Entries * 8) / clusterBytes);
  const [refcountTable, refcountBlock, l1Table] = [1, 2, 3];
  const [l2Table, data] = [l1Table + l1Clusters, l1Table + l1Clusters + 1];
  const clusters = l1Table + l1Clusters + (spec.head ? 2 : 0);
  const file = Buffer.alloc(clusters * clusterBytes);
  encodeHeader({
    sizeBytes: spec.sizeBytes,
    l1At: l1Table * clusterBytes,
    refcountTableAt: refcountTable * clusterBytes,
    refcountTableClusters: 1,
  }).copy(file);

  // The format of the backing file is named: a guest must not choose it by what it writes there.
  let at = headerBytes;
  file.writeUInt32BE(backingFormatExtension, at);
  const format = spec.backingFormat ?? 'raw';
  file.writeUInt32BE(format.length, at + 4);
  file.write(format, at + 8);
  // Padded to eight bytes.
  at += 16;
  at += 8; // end of extensions: type 0, length 0
  file.writeBigUInt64BE(BigInt(at), 8);
  file.writeUInt32BE(name.length, 16);
  name.copy(file, at);

  file.writeBigUInt64BE(BigInt(refcountBlock * clusterBytes), refcountTable * clusterBytes);
  for (let cluster = 0; cluster < clusters; cluster++) {
    file.writeUInt16BE(1, refcountBlock * clusterBytes + cluster * 2);
  }
  if (spec.head) {
    file.writeBigUInt64BE(onlyUser | BigInt(l2Table * clusterBytes), l1Table * clusterBytes);
    file.writeBigUInt64BE(onlyUser | BigInt(data * clusterBytes), l2Table * clusterBytes);
    file.set(spec.head, data * clusterBytes);
  }
  return file;
}

/** Where the tables of a qcow2 are. */
export interface TablePlaces {
  sizeBytes: number;
  l1At: number;
  refcountTableAt: number;
  refcountTableClusters: number;
}

/** The fixed part of the header, of a disk that names nothing below it. Pure. */
export function encodeHeader(places: TablePlaces): Buffer {
  const header = Buffer.alloc(headerBytes + 8); // and the end of extensions: type 0, length 0
  header.writeUInt32BE(qcow2Magic, 0);
  header.writeUInt32BE(3, 4);
  header.writeUInt32BE(clusterBits, 20);
  header.writeBigUInt64BE(BigInt(places.sizeBytes), 24);
  header.writeUInt32BE(Math.ceil(places.sizeBytes / bytesPerL1Entry), 36);
  header.writeBigUInt64BE(BigInt(places.l1At), 40);
  header.writeBigUInt64BE(BigInt(places.refcountTableAt), 48);
  header.writeUInt32BE(places.refcountTableClusters, 56);
  header.writeUInt32BE(4, 96); // 16-bit refcounts
  header.writeUInt32BE(headerBytes, 100);
  return header;
}

/** Writes a new overlay at `path`, readable and writable by its owner alone. Throws {@link VmmError}. */
export async function createOverlay(path: string, spec: OverlaySpec): Promise<void> {
  try {
    const content = encodeOverlay(spec);
    const file = await open(path, 'wx', 0o600);
    try {
      await file.truncate(content.length);
      for (const [from, to] of nonZeroRuns(content)) await writeAll(file, content, from, to);
    } finally {
      await file.close();
    }
  } catch (error) {
    if (error instanceof VmmError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    throw new VmmError(
      code === 'ENOSPC' || code === 'EDQUOT' ? 'no-space' : 'disk-failed',
      `the overlay ${path} could not be made: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

/**
 * Writes this part of `content`, whose first byte goes to `base` of the file. A nearly full disk takes a part and says so
 * only to the next write.
 */
export async function writeAll(
  file: FileHandle,
  content: Buffer,
  from: number,
  to: number,
  base = 0,
): Promise<void> {
  for (let at = from; at < to; ) at += (await file.write(content, at, to - at, base + at)).bytesWritten;
}

/** Where there is something to write, in whole blocks: an idle overlay takes a few blocks of the host's disk. */
export function* nonZeroRuns(content: Buffer): Generator<[from: number, to: number]> {
  const zeros = Buffer.alloc(blockBytes);
  for (let from = 0; from < content.length; ) {
    let to = from;
    while (to < content.length && !content.subarray(to, to + blockBytes).equals(zeros)) to += blockBytes;
    if (to > from) yield [from, to];
    from = to + blockBytes;
  }
}

/**
 * Makes the private disk of a machine: an empty qcow2 over a read-only raw file. Written here and
 * not by `qemu-img`, because four clusters of zeroes and numbers are not worth a process in the path
 * of every start. `qemu-img check` reads it in the tests.
 * Format: https://www.qemu.org/docs/master/interop/qcow2.html
 */
import { open } from 'node:fs/promises';
import { VmmError } from '../driver.js';

const clusterBits = 16;
const clusterBytes = 1 << clusterBits;
const headerBytes = 104;
const backingFormatExtension = 0xe2792aca;
/** Bytes that one cluster of the second-level table maps: 8,192 entries of a cluster each. */
const bytesPerL1Entry = (clusterBytes / 8) * clusterBytes;
/** Longest name of a backing file that the format allows. */
const maxBackingName = 1023;

/** What an overlay is made of. */
export interface OverlaySpec {
  /** Absolute path of the raw file below. */
  backingPath: string;
  /** Size the guest sees: a multiple of 512. */
  sizeBytes: number;
}

/** The whole content of an empty overlay. Pure. Throws {@link VmmError} `disk-failed` for what the format cannot say. */
export function encodeOverlay(spec: OverlaySpec): Buffer {
  const name = Buffer.from(spec.backingPath);
  if (name.length > maxBackingName) {
    throw new VmmError('disk-failed', `the path of the rootfs is longer than ${maxBackingName} bytes`);
  }
  if (!Number.isSafeInteger(spec.sizeBytes) || spec.sizeBytes <= 0 || spec.sizeBytes % 512 !== 0) {
    throw new VmmError('disk-failed', `a disk cannot have ${spec.sizeBytes} bytes: not a multiple of 512`);
  }
  const l1Entries = Math.ceil(spec.sizeBytes / bytesPerL1Entry);
  const l1Clusters = Math.ceil((l1Entries * 8) / clusterBytes);
  const [refcountTable, refcountBlock, l1Table] = [1, 2, 3];
  const clusters = l1Table + l1Clusters;
  const file = Buffer.alloc(clusters * clusterBytes);

  file.writeUInt32BE(0x514649fb, 0); // 'QFI' 0xfb
  file.writeUInt32BE(3, 4);
  file.writeUInt32BE(clusterBits, 20);
  file.writeBigUInt64BE(BigInt(spec.sizeBytes), 24);
  file.writeUInt32BE(l1Entries, 36);
  file.writeBigUInt64BE(BigInt(l1Table * clusterBytes), 40);
  file.writeBigUInt64BE(BigInt(refcountTable * clusterBytes), 48);
  file.writeUInt32BE(1, 56); // clusters of the refcount table
  file.writeUInt32BE(4, 96); // 16-bit refcounts
  file.writeUInt32BE(headerBytes, 100);

  // The format of the backing file is named: a guest must not choose it by what it writes there.
  let at = headerBytes;
  file.writeUInt32BE(backingFormatExtension, at);
  file.writeUInt32BE(3, at + 4);
  file.write('raw', at + 8);
  at += 16;
  at += 8; // end of extensions: type 0, length 0
  file.writeBigUInt64BE(BigInt(at), 8);
  file.writeUInt32BE(name.length, 16);
  name.copy(file, at);

  file.writeBigUInt64BE(BigInt(refcountBlock * clusterBytes), refcountTable * clusterBytes);
  for (let cluster = 0; cluster < clusters; cluster++) {
    file.writeUInt16BE(1, refcountBlock * clusterBytes + cluster * 2);
  }
  return file;
}

/** Writes a new overlay at `path`, readable and writable by its owner alone. Throws {@link VmmError}. */
export async function createOverlay(path: string, spec: OverlaySpec): Promise<void> {
  const content = encodeOverlay(spec);
  try {
    const file = await open(path, 'wx', 0o600);
    try {
      // Only what is not zero, so that an idle overlay takes three blocks of the host's disk.
      await file.truncate(content.length);
      const used = [0, 1, 2].map((cluster) => cluster * clusterBytes);
      for (const offset of used) await file.write(content, offset, 4096, offset);
    } finally {
      await file.close();
    }
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new VmmError(
      code === 'ENOSPC' || code === 'EDQUOT' ? 'no-space' : 'disk-failed',
      `the overlay ${path} could not be made: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

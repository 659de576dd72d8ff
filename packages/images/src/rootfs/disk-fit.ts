/**
 * A disk of the requested size from a rootfs file, without work in the guest: the file's file system is larger than
 * most disks and empty at its end, so ending it earlier takes another superblock and descriptor, which stand in the
 * machine's overlay. Growing it in the guest instead cost a fifth of a start. Called by the node agent for every start.
 * Layout: Documentation/filesystems/ext4, "Super Block" and "Block Group Descriptors".
 */
import { open } from 'node:fs/promises';
import { ImageError } from '../store.js';
import { crc32c } from './crc32c.js';
import { BLOCK_SIZE, DESCRIPTOR_SIZE, hasSuperblock } from './plan.js';

/** How a rootfs file becomes a disk. */
export interface DiskFit {
  /** Bytes of the block device: as requested, or what the image needs at least. */
  sizeBytes: number;
  /** The first 64 KiB of the disk, where they are other than the file's. */
  head?: Buffer;
  /** The file system ends before the device does: the guest has to grow it. */
  mustGrow: boolean;
}

const superblockAt = 1024;
const superblockBytes = 1024;
/** Flag of a descriptor (EXT4_BG_BLOCK_UNINIT). */
const blockBitmapUninitialised = 0x2;
/** One cluster of an overlay: room for the descriptors of many more groups than a rootfs file usually has (128). */
const headBytes = 16 * BLOCK_SIZE;

/**
 * Fits the file system in the file at `path` to a disk of `wantedBytes`.
 * @throws ImageError `build-failed` when the file holds no file system of ours
 */
export async function fitDisk(path: string, wantedBytes: number): Promise<DiskFit> {
  const file = await open(path, 'r');
  try {
    const head = Buffer.alloc(headBytes);
    const { bytesRead } = await file.read(head, 0, headBytes, 0);
    return fitHead(head.subarray(0, bytesRead), wantedBytes);
  } catch (cause) {
    throw new ImageError('build-failed', `the root file system ${path} cannot be used: ${String(cause)}`, {
      cause,
    });
  } finally {
    await file.close();
  }
}

/** The same for the file's first bytes. Pure. */
export function fitHead(head: Buffer, wantedBytes: number): DiskFit {
  const layout = readLayout(head);
  const bytesPerFlex = layout.groupsPerFlex * layout.blocksPerGroup * BLOCK_SIZE;
  const wantedGroups = Math.floor(wantedBytes / bytesPerFlex) * layout.groupsPerFlex;
  const groups = Math.min(layout.groups, Math.max(wantedGroups, layout.usedGroups));
  const fileSystemBytes = groups * layout.blocksPerGroup * BLOCK_SIZE;
  const sizeBytes = Math.max(Math.ceil(wantedBytes / BLOCK_SIZE) * BLOCK_SIZE, fileSystemBytes);
  const mustGrow = sizeBytes > fileSystemBytes;
  if (groups === layout.groups) return { sizeBytes, mustGrow };
  return { sizeBytes, mustGrow, head: cutAfter(groups, head, layout) };
}

interface Layout {
  groups: number;
  groupsPerFlex: number;
  blocksPerGroup: number;
  inodesPerGroup: number;
  /** Blocks that a group's own metadata takes, copies of the superblock included. */
  metadataOf(group: number): number;
  freeBlocksOf(group: number): number;
  freeInodesOf(group: number): number;
  /** Groups up to the last that holds something, in whole flex groups. */
  usedGroups: number;
}

function readLayout(head: Buffer): Layout {
  const field = (offset: number) => head.readUInt32LE(superblockAt + offset);
  if (head.length < headBytes || head.readUInt16LE(superblockAt + 0x38) !== 0xef53) {
    throw new Error('it holds no ext4 file system');
  }
  const blocksPerGroup = field(0x20);
  const inodesPerGroup = field(0x28);
  const groups = Math.ceil(field(0x04) / blocksPerGroup);
  const groupsPerFlex = 1 << head.readUInt8(superblockAt + 0x174);
  const descriptorBlocks = Math.ceil((groups * DESCRIPTOR_SIZE) / BLOCK_SIZE);
  const copyBlocks = 1 + descriptorBlocks;
  const tableBlocks = (inodesPerGroup * head.readUInt16LE(superblockAt + 0x58)) / BLOCK_SIZE;
  const layout: Layout = {
    groups,
    groupsPerFlex,
    blocksPerGroup,
    inodesPerGroup,
    metadataOf: (group) => 2 + tableBlocks + (hasSuperblock(group) ? copyBlocks : 0),
    freeBlocksOf: (group) => head.readUInt16LE(descriptorAt(group) + 0x0c),
    freeInodesOf: (group) => head.readUInt16LE(descriptorAt(group) + 0x0e),
    usedGroups: groups,
  };
  // Beyond what was read nothing can be said of a group: a file system that large is taken as it is.
  if (descriptorAt(groups) > head.length) return layout;
  let last = groups - 1;
  while (last >= groupsPerFlex && isPristine(last, layout)) last--;
  layout.usedGroups = (Math.floor(last / groupsPerFlex) + 1) * groupsPerFlex;
  return layout;
}

/** Nothing but metadata of the file system itself is in it. */
function isPristine(group: number, layout: Layout): boolean {
  const { groupsPerFlex, blocksPerGroup, inodesPerGroup } = layout;
  let own = hasSuperblock(group) ? layout.metadataOf(group) - layout.metadataOf(2) : 0;
  // The first group of a flex group holds the bitmaps and tables of all of them.
  if (group % groupsPerFlex === 0) own += groupsPerFlex * layout.metadataOf(2);
  return layout.freeInodesOf(group) === inodesPerGroup && layout.freeBlocksOf(group) === blocksPerGroup - own;
}

function cutAfter(groups: number, head: Buffer, layout: Layout): Buffer {
  const cut = Buffer.from(head);
  const superblock = cut.subarray(superblockAt, superblockAt + superblockBytes);
  let [freeBlocks, freeInodes, overhead] = [0, 0, superblock.readUInt32LE(0x248)];
  for (let group = 0; group < groups; group++) {
    freeBlocks += layout.freeBlocksOf(group);
    freeInodes += layout.freeInodesOf(group);
  }
  for (let group = groups; group < layout.groups; group++) overhead -= layout.metadataOf(group);
  superblock.writeUInt32LE(groups * layout.inodesPerGroup, 0x00);
  superblock.writeUInt32LE(groups * layout.blocksPerGroup, 0x04);
  superblock.writeUInt32LE(freeBlocks, 0x0c);
  superblock.writeUInt32LE(freeInodes, 0x10);
  superblock.writeUInt32LE(overhead, 0x248);
  superblock.writeUInt32LE(crc32c(superblock.subarray(0, 0x3fc)), 0x3fc);
  initialiseBitmap(cut, groups - 1, layout.blocksPerGroup);
  return cut;
}

/** The last group must have a block bitmap. One that has none yet is empty: its bitmap is the zeros that are there. */
function initialiseBitmap(head: Buffer, group: number, blocksPerGroup: number): void {
  const descriptor = head.subarray(descriptorAt(group), descriptorAt(group + 1));
  const flags = descriptor.readUInt16LE(0x12);
  if ((flags & blockBitmapUninitialised) === 0) return;
  const seed = crc32c(head.subarray(superblockAt + 0x68, superblockAt + 0x78));
  descriptor.writeUInt16LE(flags & ~blockBitmapUninitialised, 0x12);
  descriptor.writeUInt16LE(crc32c(Buffer.alloc(blocksPerGroup / 8), seed) & 0xffff, 0x18);
  descriptor.writeUInt16LE(0, 0x1e);
  const number = Buffer.alloc(4);
  number.writeUInt32LE(group);
  descriptor.writeUInt16LE(crc32c(descriptor, crc32c(number, seed)) & 0xffff, 0x1e);
}

/** Descriptors begin in the block after the superblock's. */
function descriptorAt(group: number): number {
  return BLOCK_SIZE + group * DESCRIPTOR_SIZE;
}

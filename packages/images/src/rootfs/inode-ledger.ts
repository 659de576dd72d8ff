/**
 * Checks a built file system against what was asked for: kind, mode, owner and size of every inode, read straight
 * from the inode tables. It guards the one assumption that the second pass makes, the numbering of inodes, against
 * another version of mke2fs. Layout: Documentation/filesystems/ext4, "Super Block", "Block Group Descriptors", "Inode".
 */
import type { FileHandle } from 'node:fs/promises';
import type { TreeNode } from '../merge/tree.js';
import { ImageError } from '../store.js';
import { BLOCK_SIZE, DESCRIPTOR_SIZE } from './plan.js';

const KIND_BITS = {
  file: 0o100000,
  dir: 0o040000,
  symlink: 0o120000,
  char: 0o020000,
  block: 0o060000,
  fifo: 0o010000,
};
const FIELDS = 4;
const CHUNK_INODES = 2048;

/** What every inode should look like; four words an inode, because images have hundreds of thousands. */
export class InodeLedger {
  private words = new Uint32Array(4096 * FIELDS);
  private highest = 0;

  /** Remembers an inode. */
  note(inode: number, node: TreeNode): void {
    const start = inode * FIELDS;
    if (start + FIELDS > this.words.length) {
      const larger = new Uint32Array(Math.max(this.words.length * 2, start + FIELDS));
      larger.set(this.words);
      this.words = larger;
    }
    this.words[start] = KIND_BITS[node.kind] | node.mode;
    this.words[start + 1] = node.uid;
    this.words[start + 2] = node.gid;
    this.words[start + 3] = node.kind === 'file' ? node.size % 2 ** 32 : 0;
    this.highest = Math.max(this.highest, inode);
  }

  /** Reads the inode tables and throws `build-failed` at the first difference. */
  async check(image: FileHandle): Promise<void> {
    const superblock = await readAt(image, 1024, 1024);
    const perGroup = superblock.readUInt32LE(40);
    const inodeSize = superblock.readUInt16LE(88);
    for (let first = 0; first * perGroup < this.highest; first++) {
      const descriptor = await readAt(image, BLOCK_SIZE + first * DESCRIPTOR_SIZE, DESCRIPTOR_SIZE);
      const table = descriptor.readUInt32LE(8) * BLOCK_SIZE;
      for (let index = 0; index < perGroup; index += CHUNK_INODES) {
        const start = first * perGroup + index + 1;
        const count = Math.min(CHUNK_INODES, perGroup - index, this.highest - start + 1);
        if (count <= 0) break;
        const inodes = await readAt(image, table + index * inodeSize, count * inodeSize);
        for (let i = 0; i < count; i++) this.compare(start + i, inodes, i * inodeSize);
      }
    }
  }

  private compare(inode: number, table: Buffer, at: number): void {
    const start = inode * FIELDS;
    const mode = this.words[start]!;
    if (mode === 0) return;
    const isFile = (mode & 0o170000) === 0o100000;
    const same =
      table.readUInt16LE(at) === mode &&
      table.readUInt16LE(at + 2) + table.readUInt16LE(at + 120) * 65536 === this.words[start + 1] &&
      table.readUInt16LE(at + 24) + table.readUInt16LE(at + 122) * 65536 === this.words[start + 2] &&
      (!isFile || table.readUInt32LE(at + 4) === this.words[start + 3]);
    if (same) return;
    throw new ImageError(
      'build-failed',
      `inode ${inode} of the built file system is not the file that it should be; this version of mke2fs numbers inodes in another way (1.47.1 to 1.47.3 are known to work)`,
    );
  }
}

async function readAt(image: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await image.read(buffer, 0, length, position);
  if (bytesRead !== length) {
    throw new ImageError(
      'build-failed',
      `the built file system ends at byte ${position + bytesRead}, too early`,
    );
  }
  return buffer;
}

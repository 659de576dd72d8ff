/**
 * How large the ext4 file system of an image has to be. Pure: a merged tree goes in, the arguments for mke2fs come
 * out, the same for the same tree. Called by the rootfs build.
 */
import type { DirNode, ImageTree, TreeNode } from '../merge/tree.js';

/** Bytes of a block; smaller ones forbid long symbolic links (`rootfs-facts.md`). */
export const BLOCK_SIZE = 4096;
/** Blocks of a block group: what one bitmap block can describe. */
export const BLOCKS_PER_GROUP = 32_768;
/** As a plain install on a disk of a few GiB has it. */
export const JOURNAL_MIB = 64;
/** Groups whose bitmaps and inode tables stand together: a file system can be cut after any multiple of them (1 GiB). */
export const GROUPS_PER_FLEX = 8;
/** Groups of every file system, however small the image: 16 GiB, whose descriptors fill one block. The file is
 * sparse, so this costs nothing; a disk is cut from it (`disk-fit.ts`) instead of being grown in the guest. */
const BASE_GROUPS = 128;
/** Bytes of a group's descriptor in a file system without the feature `64bit`. */
export const DESCRIPTOR_SIZE = 32;
/** One inode per 16 KiB in every group, those included that the guest adds when it grows the disk. */
const INODES_PER_GROUP = BLOCKS_PER_GROUP / 4;
/** What one bitmap block can describe. */
const MAX_INODES_PER_GROUP = 32_768;
const INODE_SIZE = 256;
/** Longer targets of symbolic links need a block of their own. */
const INLINE_SYMLINK = 59;

/** Size of a file system. */
export interface RootfsPlan {
  blocks: number;
  inodes: number;
  /** Where the journal begins, in blocks: as early as it can, so that what follows can be cut off. */
  journalBlock: number;
  /** Bytes that will be sent to mke2fs, roughly; for progress. */
  contentBytes: number;
}

/** Sums up the tree. The inodes suffice also when the disk is no larger than the tree needs. */
export function planRootfs(tree: ImageTree): RootfsPlan {
  const need = measure(tree);
  const inodesNeeded = Math.ceil(need.inodes * 1.2) + 64;
  for (let groups = GROUPS_PER_FLEX; ; groups += GROUPS_PER_FLEX) {
    // Many small files in a small image: rather more inodes in a group than a much larger disk.
    const perGroup = Math.max(INODES_PER_GROUP, Math.ceil(inodesNeeded / groups / 16) * 16);
    if (perGroup > MAX_INODES_PER_GROUP) continue;
    const available = groups * BLOCKS_PER_GROUP - overheadBlocks(groups, perGroup);
    // 3 % and 8 MiB of slack for extent blocks and what the guest writes before it has grown the disk.
    if (available >= need.blocks * 1.03 + 2048) {
      const all = Math.max(groups, BASE_GROUPS);
      return {
        blocks: all * BLOCKS_PER_GROUP,
        inodes: all * perGroup,
        journalBlock: copyBlocks(all) + GROUPS_PER_FLEX * groupBlocks(perGroup),
        contentBytes: need.bytes,
      };
    }
  }
}

/** Superblocks, descriptors, bitmaps, inode tables and the journal. */
function overheadBlocks(groups: number, inodesPerGroup: number): number {
  let copies = 0;
  for (let group = 0; group < groups; group++) if (hasSuperblock(group)) copies++;
  const journal = (JOURNAL_MIB * 2 ** 20) / BLOCK_SIZE;
  return copies * copyBlocks(groups) + groups * groupBlocks(inodesPerGroup) + journal + 64;
}

/** A copy of the superblock and the descriptors after it. */
function copyBlocks(groups: number): number {
  return 1 + Math.ceil((groups * DESCRIPTOR_SIZE) / BLOCK_SIZE);
}

/** Bitmaps and inode table of one group. */
function groupBlocks(inodesPerGroup: number): number {
  return 2 + Math.ceil((inodesPerGroup * INODE_SIZE) / BLOCK_SIZE);
}

/** sparse_super: copies stand in groups 0, 1 and powers of 3, 5 and 7. */
export function hasSuperblock(group: number): boolean {
  if (group < 2) return true;
  return [3, 5, 7].some((base) => {
    let power = base;
    while (power < group) power *= base;
    return power === group;
  });
}

function measure(tree: ImageTree): { blocks: number; inodes: number; bytes: number } {
  const seen = new Set<TreeNode>();
  const stack: DirNode[] = [tree.root];
  let blocks = 0;
  let inodes = 16;
  let bytes = 0;
  while (stack.length > 0) {
    const dir = stack.pop()!;
    let entryBytes = 24;
    for (const [name, node] of dir.children) {
      entryBytes += 8 + Math.ceil(name.length / 4) * 4;
      bytes += 512;
      if (node.kind !== 'dir' && node.isLinked) {
        if (seen.has(node)) continue;
        seen.add(node);
      }
      inodes++;
      if (node.xattrs) blocks++;
      if (node.kind === 'dir') stack.push(node);
      else if (node.kind === 'file') {
        blocks += Math.ceil(dataBytes(node.size, node.sparse) / BLOCK_SIZE);
        bytes += node.size;
      } else if (node.kind === 'symlink' && node.target.length > INLINE_SYMLINK) blocks++;
    }
    // Entries do not cross blocks: the last part of each stays empty, at worst a name's length.
    blocks += Math.ceil((entryBytes * 1.1) / (BLOCK_SIZE - 264)) + (dir.xattrs ? 1 : 0);
  }
  return { blocks, inodes, bytes };
}

/** At most what a file occupies: each data segment may touch one more block at either end, and map blocks. */
function dataBytes(size: number, sparse: Float64Array | undefined): number {
  if (!sparse) return size;
  let sum = 0;
  for (let i = 1; i < sparse.length; i += 2) sum += sparse[i]! + 2 * BLOCK_SIZE;
  return Math.min(sum, size + (sparse.length / 2) * 64 + BLOCK_SIZE);
}

/**
 * Runs `mke2fs -d -` with every choice spelled out, so that neither the host's `mke2fs.conf` nor the clock nor
 * chance shows in the file. Called by the rootfs build.
 */
import type { FileHandle } from 'node:fs/promises';
import { type ChildUser, type RunningChild, startChild } from '../process/child.js';
import { ImageError } from '../store.js';
import { BUILD_EPOCH_SECONDS } from './ext4-time.js';
import { BLOCK_SIZE, BLOCKS_PER_GROUP, GROUPS_PER_FLEX, JOURNAL_MIB, type RootfsPlan } from './plan.js';

/** Fixed for all images: a checksum seed of its own would change every metadata block that images share. */
const UUID = '5a6d1b0c-0000-4000-8000-73616e646c6f';
const HASH_SEED = '5a6d1b0c-0001-4000-8000-73616e646c6f';
/** What kernels since 4.x mount and every e2fsck since 1.43 checks; no orphan_file, no metadata_csum_seed, and no
 * 64bit: a disk has at most 1,000 GiB, and small descriptors are fewer blocks to read. No resize_inode either: it
 * names blocks all over the file system, which then could not be cut; the kernel grows one without it, by meta_bg. */
const FEATURES = [
  'none',
  'has_journal',
  'ext_attr',
  'dir_index',
  'filetype',
  'extent',
  'flex_bg',
  'sparse_super',
  'large_file',
  'huge_file',
  'dir_nlink',
  'extra_isize',
  'metadata_csum',
].join(',');

/** Contents of the `mke2fs.conf` that is used instead of the host's. */
export const MKE2FS_CONFIG = `[defaults]
\tblocksize = 4096
[fs_types]
\text4 = {
\t\tinode_size = 256
\t}
`;

/** Bumped whenever the same layers would give another file: part of a rootfs's name. */
export const BUILD_VERSION = 2;

/** Starts mke2fs on the open, empty file; it reads a tar stream from its standard input. */
export function startMke2fs(
  image: FileHandle,
  config: FileHandle,
  plan: RootfsPlan,
  user: ChildUser | undefined,
  signal: AbortSignal | undefined,
): RunningChild {
  const extended = [
    `hash_seed=${HASH_SEED}`,
    'root_owner=0:0',
    // The file is new, has its full size and so is all zeros: mke2fs sees that and marks the tables as zeroed
    // without writing them, and the guest's kernel has nothing to initialise in the background.
    'lazy_itable_init=0',
    'lazy_journal_init=1',
  ];
  return startChild({
    argv: [
      'mke2fs',
      ...['-q', '-F', '-t', 'ext4', '-T', 'ext4'],
      ...['-b', `${BLOCK_SIZE}`, '-g', `${BLOCKS_PER_GROUP}`, '-I', '256', '-N', `${plan.inodes}`],
      ...['-G', `${GROUPS_PER_FLEX}`, '-J', `size=${JOURNAL_MIB},location=${plan.journalBlock}`],
      ...['-m', '0', '-O', FEATURES, '-U', UUID],
      ...['-E', extended.join(','), '-d', '-', '/proc/self/fd/3', `${plan.blocks}`],
    ],
    user,
    stdio: ['pipe', 'ignore', 'pipe', image.fd, config.fd],
    env: { MKE2FS_CONFIG: '/proc/self/fd/4', SOURCE_DATE_EPOCH: `${BUILD_EPOCH_SECONDS}` },
    signal,
  });
}

/** Throws what a finished mke2fs has to complain about. */
export function checkMke2fs(result: { code: number | null; signal: string | null; stderr: string }): void {
  if (result.code === 0) return;
  const text = result.stderr.split('\n').filter(Boolean).slice(0, 4).join('; ');
  if (/no space left|short write|disk quota/i.test(text)) {
    throw new ImageError(
      'no-space',
      `the disk of the image store is full (mke2fs: ${text}); free some space or run \`image prune\`, then try again`,
    );
  }
  throw new ImageError(
    'build-failed',
    `mke2fs ended with ${result.signal ?? `code ${result.code}`}: ${text || 'no message'}; e2fsprogs 1.47.1 or newer with libarchive is needed`,
  );
}

/**
 * How ext4 keeps a time: 32 bits of seconds, and a word with two more bits of seconds and the nanoseconds
 * (Documentation/filesystems/ext4, "Inode Timestamps"). Called by the emitter to decide what the second pass sets.
 */

/** The creation time of every file system and inode. mke2fs also takes it as the latest time a file may have. */
export const BUILD_EPOCH_SECONDS = 1_767_225_600; // 2026-01-01

const MIN_SECONDS = -(2 ** 31);
const MAX_SECONDS = 2 ** 34 - 2 ** 31 - 1;

/** A time as stored. */
export interface Ext4Time {
  seconds: number;
  /** The low word, unsigned. */
  low: number;
  extra: number;
  /** True if mke2fs stores it right from a tar header, so that nothing has to be repaired. */
  isPlain: boolean;
}

/** Converts, and clamps to what ext4 can hold (1901 to 2446). */
export function toExt4Time(mtimeSeconds: number, mtimeNanoseconds: number): Ext4Time {
  const seconds = Math.max(MIN_SECONDS, Math.min(MAX_SECONDS, mtimeSeconds));
  const nanoseconds = seconds === mtimeSeconds ? mtimeNanoseconds : 0;
  const epochBits = Math.floor((seconds + 2 ** 31) / 2 ** 32) & 3;
  return {
    seconds,
    low: seconds >>> 0,
    extra: ((nanoseconds << 2) | epochBits) >>> 0,
    isPlain: nanoseconds === 0 && seconds >= 0 && seconds <= BUILD_EPOCH_SECONDS,
  };
}

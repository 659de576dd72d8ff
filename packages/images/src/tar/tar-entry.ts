/**
 * One entry of a tar archive as the reader hands it on. Names are byte strings: one character (0-255) a byte
 * (`latin1`), because file names in images need not be UTF-8. Used by the reader, the merge and the importers.
 */

/** What an entry stands for. */
export type TarEntryType = 'file' | 'dir' | 'symlink' | 'hardlink' | 'char' | 'block' | 'fifo';

/** Where a sparse file has data: pairs of logical offset and length. The bytes follow each other in the archive. */
export type SparseSegments = Float64Array;

/** A tar entry without its content. */
export interface TarEntry {
  type: TarEntryType;
  /** Byte string, as written in the archive. */
  name: string;
  /** Byte string: target of a symbolic or hard link, else empty. */
  linkName: string;
  /** Permission bits with setuid, setgid and sticky. */
  mode: number;
  uid: number;
  gid: number;
  /** Whole seconds since 1970, rounded down, and the rest. */
  mtimeSeconds: number;
  mtimeNanoseconds: number;
  /** Logical size of a file, 0 for everything else. */
  size: number;
  deviceMajor: number;
  deviceMinor: number;
  /** Name (byte string) to value; undefined if there are none. */
  xattrs: Map<string, Buffer> | undefined;
  /** Where the file's stored bytes begin in the uncompressed archive. */
  dataOffset: number;
  /** Stored bytes: `size`, or less in a sparse file. */
  storedSize: number;
  sparse: SparseSegments | undefined;
}

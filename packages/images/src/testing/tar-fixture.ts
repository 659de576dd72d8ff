/**
 * Tar archives made in memory for tests: any entry, whatever its content, owner, time or attributes.
 * For tests of this package and of others that need an image of known content.
 */
import { encodeTarHeader, paxRecord, tarPadding } from '../tar/tar-writer.js';

/** One entry; what is left out is a plain value. Names are byte strings (one character a byte). */
export interface FixtureEntry {
  name: string;
  type?: 'file' | 'dir' | 'symlink' | 'hardlink' | 'char' | 'block' | 'fifo';
  content?: Buffer | string;
  mode?: number;
  uid?: number;
  gid?: number;
  mtimeSeconds?: number;
  /** Written as a PAX time. */
  mtimeNanoseconds?: number;
  linkName?: string;
  deviceMajor?: number;
  deviceMinor?: number;
  xattrs?: Record<string, Buffer | string>;
  /** Further PAX records. */
  pax?: [key: string, value: string][];
}

const FLAGS = { file: '0', dir: '5', symlink: '2', hardlink: '1', char: '3', block: '4', fifo: '6' } as const;

/** The archive of these entries, in their order. */
export function buildTar(entries: FixtureEntry[]): Buffer {
  const parts = entries.flatMap(encodeEntry);
  parts.push(Buffer.alloc(1024));
  return Buffer.concat(parts);
}

/** A whiteout of `path` (`dir/name`). */
export function whiteout(path: string): FixtureEntry {
  const slash = path.lastIndexOf('/') + 1;
  return { name: `${path.slice(0, slash)}.wh.${path.slice(slash)}` };
}

/** The mark that hides everything that lower layers have in `dir`. */
export function opaque(dir: string): FixtureEntry {
  return { name: `${dir}/.wh..wh..opq` };
}

function encodeEntry(entry: FixtureEntry): Buffer[] {
  const type = entry.type ?? 'file';
  const content = type === 'file' ? Buffer.from(entry.content ?? '') : Buffer.alloc(0);
  const parts: Buffer[] = [];
  const records = paxRecordsOf(entry);
  if (records.length > 0) {
    parts.push(
      encodeTarHeader({
        typeFlag: 'x',
        name: 'PaxHeaders/entry',
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: records.length,
        mtimeSeconds: 0,
      }),
      records,
      Buffer.alloc(tarPadding(records.length)),
    );
  }
  parts.push(
    encodeTarHeader({
      typeFlag: FLAGS[type],
      name: entry.name,
      linkName: entry.linkName ?? '',
      mode: entry.mode ?? (type === 'dir' ? 0o755 : 0o644),
      uid: entry.uid ?? 0,
      gid: entry.gid ?? 0,
      size: content.length,
      mtimeSeconds: entry.mtimeSeconds ?? 1_600_000_000,
      deviceMajor: entry.deviceMajor ?? 0,
      deviceMinor: entry.deviceMinor ?? 0,
    }),
    content,
    Buffer.alloc(tarPadding(content.length)),
  );
  return parts;
}

function paxRecordsOf(entry: FixtureEntry): Buffer {
  const records: Buffer[] = [];
  if (entry.mtimeNanoseconds) {
    const nanoseconds =
      BigInt(entry.mtimeSeconds ?? 1_600_000_000) * 1_000_000_000n + BigInt(entry.mtimeNanoseconds);
    const sign = nanoseconds < 0n ? '-' : '';
    const digits = `${nanoseconds < 0n ? -nanoseconds : nanoseconds}`.padStart(10, '0');
    records.push(paxRecord('mtime', `${sign}${digits.slice(0, -9)}.${digits.slice(-9)}`));
  }
  for (const [name, value] of Object.entries(entry.xattrs ?? {})) {
    records.push(paxRecord(`SCHILY.xattr.${name}`, Buffer.from(value)));
  }
  for (const [key, value] of entry.pax ?? []) records.push(paxRecord(key, Buffer.from(value, 'latin1')));
  return Buffer.concat(records);
}

/**
 * A tar reader that is fed chunks and reports entries with the place of their content, never the content itself:
 * the build reads that later from the uncompressed layer. Understands v7, ustar, star, GNU (long names, sparse,
 * base-256) and PAX. Called by the layer indexer and the importers.
 *
 * States: `header` (collecting 512 bytes), `meta` (body of a PAX or GNU name entry), `old-sparse` (extension
 * blocks of a GNU sparse file), `sparse-map` (PAX 1.0 map before the data), `skip` (content), `end`.
 */
import type { ImageLimits } from '../limits.js';
import { ImageError } from '../store.js';
import { badPax, type PaxRecords, parsePaxNumber, parsePaxRecords, parsePaxTime, xattrsOf } from './pax.js';
import { badSparse, checkSegments, type PaxSparse, paxSparseOf, readOldGnuPairs } from './sparse.js';
import type { TarEntry, TarEntryType } from './tar-entry.js';
import {
  badHeader,
  byteString,
  decodeHeader,
  isZeroBlock,
  type RawHeader,
  readNumber,
} from './tar-header.js';

const BLOCK = 512;
const TYPES: Record<string, TarEntryType> = {
  '0': 'file',
  '\0': 'file',
  '7': 'file',
  '1': 'hardlink',
  '2': 'symlink',
  '3': 'char',
  '4': 'block',
  '5': 'dir',
  '6': 'fifo',
};

type State = 'header' | 'meta' | 'old-sparse' | 'sparse-map' | 'skip' | 'end';

/** See the file's head. `write` and `finish` throw `ImageError`; `onEntry` may throw to stop. */
export class TarReader {
  private state: State = 'header';
  private position = 0;
  private readonly block = Buffer.alloc(BLOCK);
  private filled = 0;
  private skipBytes = 0;
  private meta: { kind: 'pax' | 'name' | 'link' | 'ignored'; body: Buffer; filled: number } | undefined;
  private longName: string | undefined;
  private longLink: string | undefined;
  private pax: PaxRecords | undefined;
  private zeroBlocks = 0;
  private headerAt = 0;
  private pending: { entry: TarEntry; remaining: number; numbers: number[]; text: string } | undefined;

  constructor(
    private readonly limits: Pick<ImageLimits, 'maxTarHeaderBytes' | 'maxSparseSegments'>,
    private readonly onEntry: (entry: TarEntry) => void,
  ) {}

  /** Takes the next bytes of the archive. */
  write(chunk: Buffer): void {
    let offset = 0;
    while (offset < chunk.length) {
      if (this.state === 'end') {
        this.position += chunk.length - offset;
        return;
      }
      const left = chunk.length - offset;
      let used: number;
      if (this.state === 'skip') {
        used = Math.min(left, this.skipBytes);
        this.skipBytes -= used;
        if (this.skipBytes === 0) this.state = 'header';
      } else if (this.state === 'meta') {
        used = this.fillMeta(chunk, offset);
      } else {
        used = Math.min(left, BLOCK - this.filled);
        chunk.copy(this.block, this.filled, offset, offset + used);
        this.filled += used;
      }
      offset += used;
      this.position += used;
      if (this.filled === BLOCK) {
        this.filled = 0;
        this.takeBlock();
      }
    }
  }

  /** Bytes of content that come next and that the reader does not look at: see {@link skip}. */
  get skippableBytes(): number {
    return this.state === 'skip' ? this.skipBytes : 0;
  }

  /** Instead of writing them: the next bytes, at most {@link skippableBytes}, were left out by the caller. */
  skip(bytes: number): void {
    this.skipBytes -= bytes;
    this.position += bytes;
    if (this.skipBytes === 0) this.state = 'header';
  }

  /** To be called at the end of the input; throws `truncated` if an entry is incomplete. */
  finish(): void {
    const isClean = this.state === 'end' || (this.state === 'header' && this.filled === 0);
    if (!isClean || this.pax || this.longName !== undefined || this.longLink !== undefined) {
      throw new ImageError(
        'truncated',
        `the tar archive ends in the middle of an entry, after ${this.position} bytes; fetch or export it again`,
      );
    }
  }

  private takeBlock(): void {
    if (this.state === 'old-sparse') this.takeOldSparseBlock();
    else if (this.state === 'sparse-map') this.takeSparseMapBlock();
    else this.takeHeader();
  }

  private takeHeader(): void {
    this.headerAt = this.position - BLOCK;
    if (isZeroBlock(this.block)) {
      this.zeroBlocks++;
      if (this.zeroBlocks === 2) this.state = 'end';
      return;
    }
    if (this.zeroBlocks > 0) throw badHeader(this.headerAt, 'it follows an end mark');
    const header = decodeHeader(this.block, this.headerAt);
    if (header.size < 0) throw badHeader(this.headerAt, 'its size is negative');
    const metaKind = { x: 'pax', g: 'ignored', L: 'name', K: 'link' } as const;
    const kind = metaKind[header.typeFlag as keyof typeof metaKind];
    if (kind) this.beginMeta(kind, header.size);
    else this.takeEntry(header);
  }

  private beginMeta(kind: 'pax' | 'name' | 'link' | 'ignored', size: number): void {
    if (size > this.limits.maxTarHeaderBytes) {
      throw new ImageError(
        'too-large',
        `the extended tar header at byte ${this.headerAt} has ${size} bytes, more than the limit of ${this.limits.maxTarHeaderBytes}`,
      );
    }
    this.meta = { kind, body: Buffer.alloc(size), filled: 0 };
    if (size === 0) this.endMeta();
    else this.state = 'meta';
  }

  private fillMeta(chunk: Buffer, offset: number): number {
    const meta = this.meta!;
    const used = Math.min(chunk.length - offset, meta.body.length - meta.filled);
    chunk.copy(meta.body, meta.filled, offset, offset + used);
    meta.filled += used;
    if (meta.filled === meta.body.length) {
      this.skipBytes = padding(meta.body.length);
      this.state = this.skipBytes > 0 ? 'skip' : 'header';
      this.endMeta();
    }
    return used;
  }

  private endMeta(): void {
    const { kind, body } = this.meta!;
    this.meta = undefined;
    if (kind === 'pax') {
      const records = parsePaxRecords(body, this.headerAt);
      this.pax = this.pax ? [...this.pax, ...records] : records;
    } else if (kind === 'name') {
      this.longName = byteString(body, 0, body.length);
    } else if (kind === 'link') {
      this.longLink = byteString(body, 0, body.length);
    }
    // Global headers are ignored, as Docker does: `git archive` writes a comment into one.
  }

  private takeEntry(header: RawHeader): void {
    const isOldSparse = header.typeFlag === 'S';
    let type: TarEntryType | undefined = isOldSparse ? 'file' : TYPES[header.typeFlag];
    if (!type) {
      throw badHeader(this.headerAt, `its type ${JSON.stringify(header.typeFlag)} is unknown`);
    }
    const entry: TarEntry = {
      type,
      name: this.longName ?? header.name,
      linkName: this.longLink ?? header.linkName,
      mode: header.mode,
      uid: header.uid,
      gid: header.gid,
      mtimeSeconds: header.mtime,
      mtimeNanoseconds: 0,
      size: header.size,
      deviceMajor: header.deviceMajor,
      deviceMinor: header.deviceMinor,
      xattrs: undefined,
      dataOffset: this.position,
      storedSize: 0,
      sparse: undefined,
    };
    const paxSparse = this.pax ? this.applyPax(entry, this.pax) : undefined;
    this.longName = undefined;
    this.longLink = undefined;
    this.pax = undefined;
    if (type === 'file' && header.typeFlag === '\0' && entry.name.endsWith('/')) type = entry.type = 'dir';
    checkNames(entry, this.headerAt);
    // Directories and links may state a size although nothing follows them, except that some writers do append
    // the data of a hard link; the archive's own size tells, and only files are known to have one.
    const storedSize = type === 'file' ? entry.size : 0;
    entry.size = storedSize;
    entry.storedSize = storedSize;
    if (isOldSparse) this.beginOldSparse(entry);
    else if (paxSparse && type === 'file') this.beginPaxSparse(entry, paxSparse);
    else this.deliver(entry, storedSize);
  }

  private applyPax(entry: TarEntry, records: PaxRecords): PaxSparse | undefined {
    const at = this.headerAt;
    for (const [key, value] of records) {
      if (value === '') continue;
      if (key === 'path') entry.name = value;
      else if (key === 'linkpath') entry.linkName = value;
      else if (key === 'size') entry.size = parsePaxNumber(value, at);
      else if (key === 'uid') entry.uid = parsePaxNumber(value, at);
      else if (key === 'gid') entry.gid = parsePaxNumber(value, at);
      else if (key === 'mtime') {
        const time = parsePaxTime(value, at);
        entry.mtimeSeconds = time.seconds;
        entry.mtimeNanoseconds = time.nanoseconds;
      } else if (key === 'SCHILY.devmajor') entry.deviceMajor = parsePaxNumber(value, at);
      else if (key === 'SCHILY.devminor') entry.deviceMinor = parsePaxNumber(value, at);
    }
    entry.xattrs = xattrsOf(records);
    const sparse = paxSparseOf(records, at, this.limits.maxSparseSegments);
    if (sparse?.name) entry.name = sparse.name;
    return sparse;
  }

  private beginPaxSparse(entry: TarEntry, sparse: PaxSparse): void {
    entry.size = sparse.realSize;
    if (sparse.numbers) {
      entry.sparse = checkSegments(sparse.numbers, sparse.realSize, entry.storedSize, this.headerAt);
      this.deliver(entry, entry.storedSize);
    } else {
      this.pending = { entry, remaining: entry.storedSize, numbers: [], text: '' };
      this.state = 'sparse-map';
    }
  }

  private takeSparseMapBlock(): void {
    const pending = this.pending!;
    pending.remaining -= BLOCK;
    if (pending.remaining < 0) throw badSparse(this.headerAt, 'the map is longer than the entry');
    pending.text += this.block.toString('latin1');
    const lines = pending.text.split('\n');
    pending.text = lines.pop()!;
    if (pending.text.length > BLOCK) throw badSparse(this.headerAt, 'a line of the map is too long');
    for (const line of lines) {
      if (pending.numbers.length > 0 && pending.numbers.length === 1 + 2 * pending.numbers[0]!) break;
      pending.numbers.push(parsePaxNumber(line, this.headerAt));
      if (pending.numbers[0]! > this.limits.maxSparseSegments) {
        throw badSparse(this.headerAt, 'it has too many segments');
      }
    }
    if (pending.numbers.length === 0 || pending.numbers.length < 1 + 2 * pending.numbers[0]!) return;
    const { entry, numbers } = pending;
    this.pending = undefined;
    entry.dataOffset = this.position;
    entry.storedSize = pending.remaining;
    entry.sparse = checkSegments(numbers.slice(1), entry.size, entry.storedSize, this.headerAt);
    this.deliver(entry, entry.storedSize);
  }

  private beginOldSparse(entry: TarEntry): void {
    const numbers: number[] = [];
    readOldGnuPairs(this.block, 386, 4, numbers, this.headerAt);
    entry.size = readNumber(this.block, 483, 12, this.headerAt);
    this.pending = { entry, remaining: entry.storedSize, numbers, text: '' };
    if (this.block[482] !== 0) this.state = 'old-sparse';
    else this.endOldSparse();
  }

  private takeOldSparseBlock(): void {
    const { numbers } = this.pending!;
    readOldGnuPairs(this.block, 0, 21, numbers, this.headerAt);
    if (numbers.length > 2 * this.limits.maxSparseSegments) {
      throw badSparse(this.headerAt, 'it has too many segments');
    }
    if (this.block[504] === 0) this.endOldSparse();
  }

  private endOldSparse(): void {
    const { entry, numbers, remaining } = this.pending!;
    this.pending = undefined;
    entry.dataOffset = this.position;
    entry.sparse = checkSegments(numbers, entry.size, remaining, this.headerAt);
    this.deliver(entry, remaining);
  }

  private deliver(entry: TarEntry, storedSize: number): void {
    this.onEntry(entry);
    this.skipBytes = storedSize + padding(storedSize);
    this.state = this.skipBytes > 0 ? 'skip' : 'header';
  }
}

function padding(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

function checkNames(entry: TarEntry, at: number): void {
  if (entry.name.includes('\0') || entry.linkName.includes('\0')) throw badPax(at, 'a name contains a NUL');
  const maxId = 0xffff_ffff;
  if (entry.uid < 0 || entry.uid > maxId || entry.gid < 0 || entry.gid > maxId) {
    throw badHeader(at, 'its owner is not a 32-bit number');
  }
}

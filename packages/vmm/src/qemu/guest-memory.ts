/**
 * Copies what a stopped machine has changed of its memory. The memory is a private mapping of a file: pages that were
 * written to are anonymous, all others are still the file's. Which are which is in /proc/PID/pagemap
 * (kernel documentation: admin-guide/mm/pagemap); their content is read from /proc/PID/mem.
 */
import { readSync, writeSync } from 'node:fs';
import { type FileHandle, open, readFile, stat } from 'node:fs/promises';
import { setImmediate as breathe } from 'node:timers/promises';
import { VmmError } from '../driver.js';

const pageBytes = 4096;
const entryBytes = 8;
/** In the upper half of an entry: the page is in memory; it is in swap; it is a file's, or shared. */
const present = 1 << 31;
const swapped = 1 << 30;
const ofFile = 1 << 29;
/** Entries looked at in one go: of 256 MiB of memory. */
const entriesAtOnce = 65_536;
/** Bytes copied in one go. */
const pieceBytes = 1024 * 1024;
/** After so many bytes whoever else waits for this process gets a turn. */
const turnBytes = 4 * pieceBytes;

/** Where a mapping lies in a process. */
export interface Mapping {
  start: number;
  bytes: number;
}

/** The private mapping of a file in /proc/PID/maps, found by its inode: names change, and go. Pure. */
export function findMapping(maps: string, inode: number, bytes: number): Mapping | undefined {
  for (const line of maps.split('\n')) {
    const [, from, to, found] = /^([0-9a-f]+)-([0-9a-f]+) ...p \S+ \S+ (\d+) /.exec(line) ?? [];
    if (from === undefined || to === undefined || Number(found) !== inode) continue;
    const start = Number.parseInt(from, 16);
    if (Number.parseInt(to, 16) - start === bytes) return { start, bytes };
  }
  return undefined;
}

/** Runs of private pages in entries of a pagemap: `[first page, pages]`, in order. Pure. */
export function* privateRuns(entries: Uint32Array): Generator<[first: number, pages: number]> {
  const count = entries.length / 2;
  const isPrivate = (page: number): boolean => {
    const high = entries[2 * page + 1] ?? 0;
    return (high & (present | swapped)) !== 0 && (high & ofFile) === 0;
  };
  for (let page = 0; page < count; page++) {
    if (!isPrivate(page)) continue;
    const first = page;
    while (page < count && isPrivate(page)) page++;
    yield [first, page - first];
  }
}

/**
 * Writes every private page of the machine's memory to its place in `target`, which begins as a copy of the file below.
 * Nothing may run in the guest meanwhile. `memoryPath` leads to the file below, by whatever name. Resolves with the bytes that were written.
 * @throws VmmError `save-failed`, `no-space`
 */
export async function copyPrivatePages(
  pid: number,
  memoryPath: string,
  memoryBytes: number,
  target: FileHandle,
  signal: AbortSignal,
): Promise<number> {
  const { ino } = await stat(memoryPath);
  const mapping = findMapping(await readFile(`/proc/${pid}/maps`, 'latin1'), ino, memoryBytes);
  if (!mapping)
    throw new VmmError('save-failed', `process ${pid} has no mapping of ${memoryPath} of its memory's size`);
  const pagemap = await open(`/proc/${pid}/pagemap`, 'r');
  try {
    const memory = await open(`/proc/${pid}/mem`, 'r');
    try {
      return await copyRuns(mapping, pagemap.fd, memory.fd, target.fd, signal);
    } finally {
      await memory.close();
    }
  } finally {
    await pagemap.close();
  }
}

/** Synchronous calls, because each is a few microseconds and the guest stands still; with turns for others in between. */
async function copyRuns(
  { start, bytes }: Mapping,
  pagemap: number,
  memory: number,
  target: number,
  signal: AbortSignal,
): Promise<number> {
  const pages = bytes / pageBytes;
  const entries = Buffer.alloc(Math.min(pages, entriesAtOnce) * entryBytes);
  const piece = Buffer.alloc(pieceBytes);
  let copied = 0;
  let turn = turnBytes;
  for (let page = 0; page < pages; page += entriesAtOnce) {
    const wanted = Math.min(entriesAtOnce, pages - page) * entryBytes;
    readWhole(pagemap, entries, wanted, (start / pageBytes + page) * entryBytes);
    const view = new Uint32Array(entries.buffer, entries.byteOffset, wanted / 4);
    for (const [first, count] of privateRuns(view)) {
      const offset = (page + first) * pageBytes;
      for (let at = 0; at < count * pageBytes; at += pieceBytes) {
        const length = Math.min(pieceBytes, count * pageBytes - at);
        readWhole(memory, piece, length, start + offset + at);
        writeWhole(target, piece, length, offset + at);
        copied += length;
        if (copied < turn) continue;
        turn += turnBytes;
        await breathe();
        signal.throwIfAborted();
      }
    }
  }
  return copied;
}

function readWhole(fd: number, buffer: Buffer, length: number, position: number): void {
  for (let at = 0; at < length; ) {
    const read = readSync(fd, buffer, at, length - at, position + at);
    if (read === 0) throw new VmmError('save-failed', "the machine's memory could not be read to its end");
    at += read;
  }
}

function writeWhole(fd: number, buffer: Buffer, length: number, position: number): void {
  for (let at = 0; at < length; ) at += writeSync(fd, buffer, at, length - at, position + at);
}

/** The tar reader on each format, cut into chunks of every size, and on damage. */
import { execFileSync } from 'node:child_process';
import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { DEFAULT_LIMITS } from '../limits.js';
import type { ImageError } from '../store.js';
import { buildTar, type FixtureEntry } from '../testing/tar-fixture.js';
import type { TarEntry } from './tar-entry.js';
import { TarReader } from './tar-reader.js';

function readTar(bytes: Buffer, chunkSize = 65_536): TarEntry[] {
  const entries: TarEntry[] = [];
  const reader = new TarReader(DEFAULT_LIMITS, (entry) => entries.push(entry));
  for (let at = 0; at < bytes.length; at += chunkSize) reader.write(bytes.subarray(at, at + chunkSize));
  reader.finish();
  return entries;
}

function failureOf(bytes: Buffer): ImageError {
  try {
    readTar(bytes);
  } catch (error) {
    return error as ImageError;
  }
  throw new Error('it was accepted');
}

/** The file's content put together from the archive and its sparse map. */
function contentOf(bytes: Buffer, entry: TarEntry): Buffer {
  const content = Buffer.alloc(entry.size);
  let stored = entry.dataOffset;
  const segments = entry.sparse ?? [0, entry.size];
  for (let i = 0; i < segments.length; i += 2) {
    bytes.copy(content, segments[i]!, stored, stored + segments[i + 1]!);
    stored += segments[i + 1]!;
  }
  return content;
}

describe('names, numbers and attributes', () => {
  const entry: FixtureEntry = {
    name: `${'d/'.repeat(80)}caf\xe9\n"`,
    type: 'file',
    content: 'hello',
    mode: 0o6755,
    uid: 3_000_000_000,
    gid: 4_294_967_295,
    mtimeSeconds: -2,
    mtimeNanoseconds: 500_000_001,
    xattrs: { 'user.bin': Buffer.from([0, 10, 61, 255]) },
  };

  test.each([1, 7, 511, 512, 513, 100_000])('come through in chunks of %i bytes', (chunkSize) => {
    const bytes = buildTar([entry, { name: 'l', type: 'symlink', linkName: '\xff'.repeat(300) }]);
    const [file, link] = readTar(bytes, chunkSize);
    expect(file).toMatchObject({
      type: 'file',
      name: entry.name,
      mode: 0o6755,
      uid: 3_000_000_000,
      gid: 4_294_967_295,
      mtimeSeconds: -2,
      mtimeNanoseconds: 500_000_001,
      size: 5,
    });
    expect(file!.xattrs!.get('user.bin')).toEqual(Buffer.from([0, 10, 61, 255]));
    expect(contentOf(bytes, file!).toString()).toBe('hello');
    expect(link!.linkName).toBe('\xff'.repeat(300));
  });

  test('any name and content survives any cut', () => {
    const nameArb = fc
      .uint8Array({ minLength: 1, maxLength: 300 })
      .map((bytes) => Buffer.from(bytes).toString('latin1').replaceAll('\0', 'n'));
    fc.assert(
      fc.property(
        fc.array(fc.record({ name: nameArb, content: fc.string() }), { maxLength: 5 }),
        fc.integer({ min: 1, max: 2000 }),
        (entries, chunkSize) => {
          const bytes = buildTar(entries);
          const read = readTar(bytes, chunkSize);
          expect(read.map((e) => [e.name, contentOf(bytes, e).toString()])).toEqual(
            entries.map((e) => [e.name, e.content]),
          );
        },
      ),
      { numRuns: 100, seed: 7 },
    );
  });

  test('libarchive attributes are decoded, and star-style ones win', () => {
    const pax: [string, string][] = [
      ['LIBARCHIVE.xattr.user.a%20b', Buffer.from('one').toString('base64')],
      ['LIBARCHIVE.xattr.user.c', Buffer.from('two').toString('base64')],
      ['SCHILY.xattr.user.c', 'three'],
    ];
    const [file] = readTar(buildTar([{ name: 'f', pax }]));
    expect(file!.xattrs!.get('user.a b')!.toString()).toBe('one');
    expect(file!.xattrs!.get('user.c')!.toString()).toBe('three');
  });

  test('a global header is no file', () => {
    const bytes = buildTar([{ name: 'f', content: 'x' }]);
    const global = buildTar([{ name: 'pax_global_header', content: '20 comment=whatever\n' }]).subarray(
      0,
      1024,
    );
    global[156] = 'g'.charCodeAt(0);
    fixChecksum(global);
    expect(readTar(Buffer.concat([global, bytes])).map(({ name }) => name)).toEqual(['f']);
  });
});

describe('sparse files as GNU tar writes them', () => {
  test.each([
    ['old GNU', ['--format=gnu']],
    ['PAX 0.0', ['--format=pax', '--sparse-version=0.0']],
    ['PAX 0.1', ['--format=pax', '--sparse-version=0.1']],
    ['PAX 1.0', ['--format=pax', '--sparse-version=1.0']],
  ])('%s', (_name, options) => {
    const folder = mkdtempSync(join(tmpdir(), 'sandlot-sparse-'));
    try {
      const path = join(folder, 'sparse-file-with-a-name');
      const file = openSync(path, 'w');
      ftruncateSync(file, 3_000_000);
      // More segments than fit into one header, so that extension blocks are read too.
      for (let i = 0; i < 40; i++) writeSync(file, Buffer.alloc(4096, 65 + (i % 26)), 0, 4096, i * 65_536);
      closeSync(file);
      const bytes = execFileSync(
        'tar',
        [...options, '-S', '-C', folder, '-cf', '-', 'sparse-file-with-a-name'],
        {
          maxBuffer: 1e8,
        },
      );
      const [entry] = readTar(bytes, 777);
      expect(entry!.name).toBe('sparse-file-with-a-name');
      expect(entry!.size).toBe(3_000_000);
      expect(entry!.sparse!.length).toBeGreaterThan(40);
      const plain = readFileSync(path);
      expect(contentOf(bytes, entry!).equals(plain)).toBe(true);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe('damage', () => {
  const bytes = buildTar([
    { name: 'a', content: 'x'.repeat(1000) },
    { name: 'b', content: 'y' },
  ]);

  test('an archive that ends in an entry is truncated', () => {
    for (const length of [700, 1023, 1500])
      expect(failureOf(bytes.subarray(0, length)).code).toBe('truncated');
  });

  test('an archive without end marks is accepted', () => {
    expect(readTar(bytes.subarray(0, bytes.length - 1024))).toHaveLength(2);
  });

  test('a changed header is refused', () => {
    const changed = Buffer.from(bytes);
    changed[0] = 0x7a;
    expect(failureOf(changed)).toMatchObject({ code: 'invalid-layer' });
    expect(failureOf(changed).message).toContain('checksum');
  });

  test.each([
    ['a map that overlaps', '0,4,2,4'],
    ['a map behind the end', '0,4,100,4'],
    ['a map that does not add up', '0,4'],
    ['a map with half a pair', '0,8,9'],
  ])('%s is refused', (_name, map) => {
    const pax: [string, string][] = [
      ['GNU.sparse.size', '20'],
      ['GNU.sparse.map', map],
    ];
    expect(failureOf(buildTar([{ name: 's', content: '12345678', pax }]))).toMatchObject({
      code: 'invalid-layer',
    });
  });

  test('a header that claims to be huge is refused before it is read', () => {
    const header = buildTar([{ name: 'x', content: 'x' }]).subarray(0, 512);
    header[156] = 'L'.charCodeAt(0);
    header.write('77777777777\0', 124, 'latin1');
    fixChecksum(header);
    expect(failureOf(header)).toMatchObject({ code: 'too-large' });
  });

  test('no input makes it throw anything but an ImageError, or hang', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 3000 }), fc.nat(1400), (noise, at) => {
        const damaged = Buffer.concat([bytes.subarray(0, at), Buffer.from(noise), bytes.subarray(at)]);
        try {
          readTar(damaged, 333);
        } catch (error) {
          expect((error as Error).name).toBe('ImageError');
        }
      }),
      { numRuns: 300, seed: 3 },
    );
  });
});

function fixChecksum(header: Buffer): void {
  header.write('        ', 148, 'latin1');
  let sum = 0;
  for (let i = 0; i < 512; i++) sum += header[i]!;
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
}

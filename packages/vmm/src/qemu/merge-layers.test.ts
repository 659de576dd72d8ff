/** Merged layers hold what the layers held, read by QEMU's own tools; what no overlay of ours can be is refused. */
import { execFileSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { snapshotPaths } from '../snapshot-files.js';
import { mergeLayers } from './merge-layers.js';
import { createOverlay } from './overlay.js';

const mib = 1024 * 1024;
const never = new AbortController().signal;

let root: string;
let base: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'sandlot-merge-'));
  base = join(root, 'base');
  writeFileSync(base, Buffer.alloc(2 * mib, 0xaa));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

let count = 0;
/** A chain as QEMU is told it. */
function chain(paths: readonly string[]): string {
  const file = (filename: string) => ({ driver: 'file', filename });
  let node: object = { driver: 'raw', file: file(base) };
  for (const path of paths) node = { driver: 'qcow2', file: file(path), backing: node };
  return `json:${JSON.stringify(node)}`;
}
const qemuIo = (image: string, commands: string[]) =>
  execFileSync('qemu-io', [...commands.flatMap((command) => ['-c', command]), image], { encoding: 'utf8' });

/** A new layer above these, with these commands done in it. */
async function layer(below: readonly string[], commands: string[], sizeBytes = 600 * mib): Promise<string> {
  const path = join(root, `layer-${++count}.qcow2`);
  await createOverlay(path, { backingPath: base, sizeBytes });
  if (commands.length > 0) qemuIo(chain([...below, path]), commands);
  return path;
}
async function merge(layers: string[]): Promise<string> {
  const folder = join(root, `merged-${++count}`);
  mkdirSync(folder);
  await mergeLayers({ layers, folder }, never);
  return snapshotPaths(folder).disk;
}
function expectSame(one: readonly string[], other: readonly string[]): void {
  execFileSync('qemu-img', ['compare', chain(one), chain(other)], { encoding: 'utf8' });
}
function expectSound(path: string): void {
  const check = JSON.parse(execFileSync('qemu-img', ['check', '--output=json', path], { encoding: 'utf8' }));
  expect(check).toMatchObject({ 'check-errors': 0, format: 'qcow2' });
  expect(check).not.toHaveProperty('corruptions');
  expect(check).not.toHaveProperty('leaks');
}

it('holds for each cluster what the highest of them holds, whatever they hold', async () => {
  const at = fc.constantFrom(0, 64, 100, 1000, 1024, 524_288 - 64, 524_288, 550_000);
  const write = fc.record({
    layer: fc.integer({ min: 0, max: 3 }),
    at,
    kib: fc.constantFrom(4, 64, 200, 3000),
    what: fc.constantFrom('write -P 1', 'write -P 2', 'write -z', 'write -z -u', 'discard'),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(write, { maxLength: 12 }), async (writes) => {
      const layers: string[] = [];
      for (let at = 0; at < 4; at++) {
        const commands = writes
          .filter((one) => one.layer === at)
          .map((one) => `${one.what} ${one.at}k ${one.kib}k`);
        layers.push(await layer(layers, commands));
      }
      const merged = await merge(layers.slice(1));
      expectSound(merged);
      expectSame([layers[0] as string, merged], layers);
      expectSame([await merge([layers[0] as string, merged])], layers);
    }),
    { numRuns: 8 },
  );
});

it('takes no more room than what it holds, and is read-only for all who reach it', async () => {
  const one = await layer([], ['write -P 1 0 1M', 'write -P 1 550M 1M']);
  const two = await layer([one], ['write -P 2 0 1M']);
  const merged = await merge([one, two]);
  expect(statSync(merged).blocks * 512).toBeLessThan(2.3 * mib);
  expect(statSync(merged).mode & 0o777).toBe(0o400);
  expect(readdirSync(join(merged, '..'))).toEqual(['disk.qcow2']);
});

it('goes at the pace of its caller, and is gone without a trace when it is cut off', async () => {
  const one = await layer([], ['write -P 1 0 8M']);
  const folder = join(root, 'cut');
  mkdirSync(folder);
  const abort = new AbortController();
  let pieces = 0;
  const pace = async (bytes: number) => {
    expect(bytes).toBeLessThanOrEqual(mib);
    if (++pieces === 3) abort.abort(new Error('enough'));
  };
  await expect(mergeLayers({ layers: [one, one], folder, pace }, abort.signal)).rejects.toMatchObject({
    code: 'aborted',
  });
  expect(pieces).toBe(3);
  expect(readdirSync(folder)).toEqual([]);
});

it('refuses what is no disk of ours, and what is damaged', async () => {
  const good = await layer([], ['write -P 1 0 1M']);
  const folder = join(root, 'refused');
  mkdirSync(folder);
  const refuse = async (layers: string[], why: RegExp) => {
    await expect(mergeLayers({ layers, folder }, never)).rejects.toThrow(why);
    expect(readdirSync(folder)).toEqual([]);
  };
  const change = (name: string, at: number, bytes: number[]) => {
    const path = join(root, name);
    const content = readFileSync(good);
    Buffer.from(bytes).copy(content, at);
    writeFileSync(path, content);
    return path;
  };
  await refuse([good, change('magic', 0, [0])], /no disk that Sandlot made/);
  await refuse([good, change('external data file', 79, [4])], /no disk that Sandlot made/);
  await refuse([good, change('size', 24, [0x7f])], /no disk that Sandlot made/);
  await refuse([good, change('tables', 36, [0xff])], /no disk that Sandlot made/);
  await refuse([good, await layer([], [], 16 * mib)], /different sizes/);
  await refuse([good, join(root, 'missing')], /could not be merged/);
  const l1At = Number(readFileSync(good).readBigUInt64BE(40));
  await refuse([good, change('l1', l1At + 5, [0xff, 0xfe])], /damaged/);
  await refuse([good, change('l1 far away', l1At + 1, [0x10])], /cut short/);
  const short = join(root, 'short');
  writeFileSync(short, readFileSync(good));
  truncateSync(short, 4096);
  await refuse([good, short], /no disk that Sandlot made/);
  const compressed = join(root, 'compressed.qcow2');
  execFileSync('qemu-img', ['convert', '-c', '-O', 'qcow2', base, compressed]);
  execFileSync('qemu-img', ['resize', '-q', compressed, '600M']);
  await refuse([good, compressed], /compressed/);
});

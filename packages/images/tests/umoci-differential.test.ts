/**
 * The measure of the merge and the build: for generated images, the mounted rootfs equals what `umoci unpack`
 * makes of the same layout, entry by entry, extended attributes and nanoseconds included.
 */
import { execFileSync } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LayoutFixture } from '../src/testing/layout-fixture.js';
import { checkFilesystem, withMountedRootfs } from '../src/testing/mounted-rootfs.js';
import { buildTar, type FixtureEntry } from '../src/testing/tar-fixture.js';
import { type ListedEntry, listTree } from '../src/testing/tree-listing.js';
import { isAvailable, scratchFolder, scratchStore } from './scratch.js';

const RUNS = Number(process.env['SANDLOT_DIFF_RUNS'] ?? 60);
const SEED = Number(process.env['SANDLOT_DIFF_SEED'] ?? 20_260_101);
const canRun = isAvailable('the comparison with umoci', true, 'umoci', 'python3', 'mount', 'zstd');

/** Few names, so that layers collide: overwrite, whiteout, type change. One is not UTF-8, one is long. */
const NAMES = ['a', 'b', 'c', 'd', 'caf\xe9', `${'long-'.repeat(24)}x`, 'lost+found'];

const nameArb = fc.constantFrom(...NAMES);
const pathArb = fc.array(nameArb, { minLength: 1, maxLength: 3 }).map((parts) => parts.join('/'));
const metadataArb = fc.record({
  mode: fc.constantFrom(0o644, 0o755, 0o4755, 0o2755, 0o1777, 0, 0o600),
  uid: fc.constantFrom(0, 1000, 65_534, 3_000_000),
  gid: fc.constantFrom(0, 50, 4_000_000),
  mtimeSeconds: fc.constantFrom(0, 1, 1_600_000_000, 1_900_000_000, 4_000_000_000, 9_000_000_000, -7),
  mtimeNanoseconds: fc.constantFrom(0, 0, 1, 123_456_789, 999_999_999),
});
const xattrsArb = fc.option(
  fc.dictionary(
    fc.constantFrom('user.a', 'user.bin', 'trusted.t', 'user.long'),
    fc.uint8Array({ minLength: 1, maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    { maxKeys: 3 },
  ),
  { nil: undefined, freq: 3 },
);
/** Long contents by name, so that a counterexample can be read. */
const CONTENTS: Record<string, string> = {
  '@5000': 'x'.repeat(5000),
  '@hole': `${'\0'.repeat(70_000)}end`,
  '@zeros': '\0'.repeat(4096),
};
const contentArb = fc.oneof(fc.string({ maxLength: 10 }), fc.constantFrom('', ...Object.keys(CONTENTS)));

const entryArb: fc.Arbitrary<FixtureEntry> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc
      .record({ name: pathArb, content: contentArb, xattrs: xattrsArb, meta: metadataArb })
      .map(flat),
  },
  {
    weight: 4,
    arbitrary: fc
      .record({ name: pathArb, type: fc.constant('dir'), xattrs: xattrsArb, meta: metadataArb })
      .map(flat),
  },
  {
    weight: 2,
    arbitrary: fc
      .record({ name: pathArb, type: fc.constant('symlink'), linkName: linkArb(), meta: metadataArb })
      .map(flat),
  },
  {
    weight: 2,
    arbitrary: fc
      .record({ name: pathArb, type: fc.constant('hardlink'), linkName: pathArb, meta: metadataArb })
      .map(flat),
  },
  {
    weight: 1,
    arbitrary: fc.record({ name: pathArb, type: fc.constant('fifo'), meta: metadataArb }).map(flat),
  },
  {
    weight: 1,
    arbitrary: fc
      .record({
        name: pathArb,
        type: fc.constantFrom('char', 'block'),
        deviceMajor: fc.nat(511),
        deviceMinor: fc.constantFrom(0, 3, 70_000),
        meta: metadataArb,
      })
      .map(flat),
  },
  { weight: 2, arbitrary: pathArb.map((path) => ({ name: path.replace(/([^/]+)$/, '.wh.$1') })) },
  { weight: 1, arbitrary: pathArb.map((path) => ({ name: `${path}/.wh..wh..opq` })) },
);

function linkArb(): fc.Arbitrary<string> {
  return fc.oneof(
    pathArb,
    pathArb.map((path) => `/${path}`),
    pathArb.map((path) => `../${path}`),
    fc.constantFrom('.', '/', 'nowhere', 'x'.repeat(200)),
  );
}

function flat(value: Record<string, unknown>): FixtureEntry {
  const { meta, ...rest } = value;
  return { ...(meta as object), ...rest } as unknown as FixtureEntry;
}

const imageArb = fc.array(
  fc.record({
    entries: fc.array(entryArb, { minLength: 1, maxLength: 14 }),
    compression: fc.constantFrom('plain', 'gzip'),
  }),
  { minLength: 1, maxLength: 4 },
);

/**
 * Makes generated layers mostly valid, or umoci would refuse nearly all: parents are stated where there is nothing or
 * a file (symbolic links stay, and are gone through), and hard links point to something that was there.
 */
class Sanitizer {
  private readonly kinds = new Map<string, string>();

  layer(entries: FixtureEntry[]): FixtureEntry[] {
    const result: FixtureEntry[] = [];
    for (const entry of entries) {
      const parts = entry.name.split('/');
      for (let i = 1; i < parts.length; i++) {
        const parent = parts.slice(0, i).join('/');
        const kind = this.kinds.get(parent);
        if (kind === 'dir' || kind === 'symlink') continue;
        result.push({ name: parent, type: 'dir', mtimeSeconds: 77 });
        this.kinds.set(parent, 'dir');
      }
      const fixed = this.fix(entry);
      if (!entry.name.includes('.wh.')) this.kinds.set(entry.name, fixed.type ?? 'file');
      result.push(fixed);
    }
    return result;
  }

  private fix(entry: FixtureEntry): FixtureEntry {
    if (entry.type === 'hardlink') {
      const targets = [...this.kinds].filter(([path, kind]) => kind !== 'dir' && path !== entry.name);
      const target = targets[entry.linkName!.length % Math.max(1, targets.length)];
      return target ? { ...entry, linkName: target[0] } : { ...entry, type: 'fifo' };
    }
    const { content } = entry;
    return typeof content === 'string' ? { ...entry, content: CONTENTS[content] ?? content } : entry;
  }
}

function unpackWithUmoci(layout: string, bundle: string): ListedEntry[] | string {
  try {
    execFileSync('umoci', ['unpack', '--image', `${layout}:latest`, bundle], { stdio: 'pipe' });
  } catch (error) {
    return `${(error as { stderr: Buffer }).stderr}`;
  }
  return listTree(join(bundle, 'rootfs'));
}

/** What cannot be the same: umoci gives directories that it had to invent the time of day. */
function withoutInventedTimes(entries: ListedEntry[], reference: ListedEntry[]): unknown[] {
  const now = BigInt(Date.now()) * 1_000_000n;
  const isInvented = ({ mtime }: ListedEntry) => {
    const age = now - BigInt(mtime);
    return age > -60_000_000_000n && age < 600_000_000_000n;
  };
  const invented = new Set(reference.filter(isInvented).map(({ path }) => path));
  return entries.map((entry) => (invented.has(entry.path) ? { ...entry, mtime: 'invented' } : entry));
}

describe.skipIf(!canRun)('rootfs against umoci unpack', () => {
  test('generated images are equal, entry by entry', { timeout: 120_000 }, async () => {
    const folder = await scratchFolder();
    const store = await scratchStore();
    let compared = 0;
    let refused = 0;
    let run = 0;
    await fc.assert(
      fc.asyncProperty(imageArb, async (layers) => {
        const work = join(folder, `${run++}`);
        try {
          const layout = await LayoutFixture.create(join(work, 'layout'));
          const sanitizer = new Sanitizer();
          await layout.addImage({
            layers: layers.map(({ entries, compression }) => ({
              tar: buildTar(sanitizer.layer(entries)),
              compression: compression as 'plain' | 'gzip',
            })),
          });
          const expected = unpackWithUmoci(layout.folder, join(work, 'bundle'));
          const name = `diff:${run}`;
          await store.importFolder(layout.folder, name);
          const built = store.acquire(name, 'test').catch((error: Error) => error);
          const hold = await built;
          if (typeof expected === 'string' || hold instanceof Error) {
            // Layers that contradict themselves: both have to refuse.
            const why = typeof expected === 'string' ? expected : 'it accepts the image';
            expect(hold, `umoci: ${why.slice(-400)}`).toBeInstanceOf(Error);
            expect(expected, `we: ${hold}`).toBeTypeOf('string');
            refused++;
            return;
          }
          checkFilesystem(hold.path);
          const actual = await withMountedRootfs(hold.path, listTree);
          expect(withoutInventedTimes(actual, expected)).toEqual(withoutInventedTimes(expected, expected));
          compared++;
        } finally {
          await store.release('test');
          await store.prune();
          await rm(work, { recursive: true, force: true });
        }
      }),
      { numRuns: RUNS, seed: SEED, endOnFailure: true },
    );
    console.log(`compared ${compared} images, ${refused} refused by both`);
    expect(compared).toBeGreaterThan(RUNS / 3);
  });
});

/** Transfers as users do them: many sizes, read at once by who waits for them; folders that hold what should not leave. */
import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

let node: TestNode;
let sandbox: TestSandbox;

beforeAll(async () => {
  node = await TestNode.start();
  sandbox = await node.create();
});
afterAll(() => node?.close());

it('an upload of any size is there, whole, when its answer comes', async () => {
  const random = new SeededRandom(5);
  for (const size of [0, 1, 4_095, 4_096, 18_000, 65_537, 1_000_000, 20_000_000]) {
    const content = random.bytes(size);
    const path = `/srv/sizes/${size}`;
    await sandbox.files.uploadStream(content, path);
    const [seen, listed] = await Promise.all([
      sandbox.out(`sha256sum < ${path}`, { timeoutMs: 100_000 }),
      sandbox.files.stat(path),
    ]);
    expect(seen.split(' ')[0]).toBe(createHash('sha256').update(content).digest('hex'));
    expect(listed.size).toBe(size);
  }
});

it('many uploads at once to one folder all arrive', async () => {
  const names = [...Array(40).keys()].map((n) => `f${n}`);
  await Promise.all(
    names.map((name) => sandbox.files.uploadStream(Buffer.alloc(20_000, name), `/srv/many/${name}`)),
  );
  expect(
    (await sandbox.out('ls /srv/many | wc -l; du -b /srv/many/* | cut -f1 | sort -u')).split('\n'),
  ).toEqual(['40', '20000']);
});

it('a folder that a guest has laid traps in comes down, and nothing outside of its target changes', async () => {
  const outside = join(node.folder, 'outside');
  mkdirSync(outside);
  writeFileSync(join(outside, 'victim'), 'unchanged');
  await sandbox.out(`set -e
mkdir -p /srv/trap/sub && cd /srv/trap
ln -s ${outside} way-out && ln -s ../../../../../../../../..${outside}/victim climbing
ln -s /etc/passwd passwd && echo plain > sub/plain && mkfifo pipe
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('socket')"
truncate -s 10M sub/small-holes && echo end >> sub/small-holes`);
  const target = join(node.folder, 'down');
  const skipped: string[] = [];
  await sandbox.files.downloadDirectory('/srv/trap', target, { onSkip: (name) => skipped.push(name) });
  // A second time over what is there now: its links must not be followed.
  await sandbox.files.downloadDirectory('/srv/trap', target, { onSkip: (name) => skipped.push(name) });
  expect(readdirSync(outside)).toEqual(['victim']);
  expect(readFileSync(join(outside, 'victim'), 'utf8')).toBe('unchanged');
  expect(readFileSync(join(target, 'sub/plain'), 'utf8')).toBe('plain\n');
  expect(lstatSync(join(target, 'sub/small-holes')).size).toBe(10 * 2 ** 20 + 4);
  // Links that lead out of the folder are left as links or left out, never replaced by what they lead to.
  for (const name of readdirSync(target).filter((name) => lstatSync(join(target, name)).isSymbolicLink()))
    expect(['way-out', 'climbing', 'passwd']).toContain(name);
  expect(readdirSync(target)).not.toContain('pipe');
  if (readdirSync(target).includes('passwd'))
    expect(readlinkSync(join(target, 'passwd'))).toBe('/etc/passwd');
});

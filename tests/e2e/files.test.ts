/** Files into and out of a real machine: whole, streamed, refused with a reason, and nothing outside is touched. */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buildTar } from '@sandlot/images/testing/tar-fixture';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { residentMiB } from '../driver/leftovers.js';
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

const hashOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

async function bytesOf(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of source) chunks.push(chunk);
  return Buffer.concat(chunks);
}

it('carries 50 MB there and back unchanged, in flat memory', async () => {
  const content = new SeededRandom(1).bytes(50_000_000);
  const before = residentMiB(node.pid);
  await sandbox.files.uploadStream(content, '/root/big.bin');
  expect(await sandbox.out('sha256sum < /root/big.bin')).toBe(`${hashOf(content)}  -`);
  const local = join(node.folder, 'big.bin');
  expect(await sandbox.files.downloadFile('/root/big.bin', local)).toBe(content.length);
  expect(hashOf(readFileSync(local))).toBe(hashOf(content));
  expect(residentMiB(node.pid) - before).toBeLessThan(48);
  await sandbox.out('rm /root/big.bin');
});

it('makes missing folders, and replaces a file whole', async () => {
  await sandbox.files.uploadStream(Buffer.from('first, and longer'), '/srv/new/deep/file');
  await sandbox.files.uploadStream(Buffer.from('second'), '/srv/new/deep/file');
  expect(await sandbox.out('cat /srv/new/deep/file')).toBe('second');
  await sandbox.files.uploadStream(new Uint8Array(0), '/srv/new/empty');
  expect(await sandbox.out('stat -c %s /srv/new/empty')).toBe('0');
});

it('refuses to upload onto a folder, and leaves nothing beside it', async () => {
  const before = await sandbox.out('ls -A / /srv');
  await expect(sandbox.files.uploadStream(Buffer.from('x'), '/srv')).rejects.toMatchObject({ status: 400 });
  expect(await sandbox.out('ls -A / /srv')).toBe(before);
});

it('says that a file is missing, or is a folder', async () => {
  await expect(sandbox.files.downloadStream('/no/such')).rejects.toMatchObject({ status: 404 });
  await expect(sandbox.files.downloadStream('/etc')).rejects.toMatchObject({ status: 400 });
});

it('reads windows, from the end too', async () => {
  await sandbox.out('printf 0123456789 > /root/digits');
  expect(await sandbox.files.readFile('/root/digits', { offset: 2, length: 3 })).toMatchObject({
    content: '234',
    totalSize: 10,
    offset: 2,
    truncated: true,
  });
  expect((await sandbox.files.readFile('/root/digits', { offset: -4, length: 10 })).content).toBe('6789');
  expect((await sandbox.files.readFile('/root/digits')).content).toBe('0123456789');
  expect((await sandbox.files.readFile('/root/digits', { offset: 50, length: 5 })).content).toBe('');
});

it('reads a file of /proc, whose size is not known', async () => {
  expect((await sandbox.files.readFile('/proc/sys/kernel/ostype')).content).toBe('Linux\n');
  expect((await bytesOf(await sandbox.files.downloadStream('/proc/sys/kernel/ostype'))).toString()).toBe(
    'Linux\n',
  );
});

it('tells what a path is, without following a link', async () => {
  await sandbox.out('ln -sf digits /root/link && chmod 640 /root/digits');
  expect(await sandbox.files.stat('/root/digits')).toMatchObject({
    kind: 'file',
    size: 10,
    mode: 0o640,
    uid: 0,
  });
  expect(await sandbox.files.stat('/root/link')).toMatchObject({ kind: 'symlink', target: 'digits' });
  expect(await sandbox.files.stat('/root')).toMatchObject({ kind: 'directory' });
});

it('carries a folder there and back: names, modes, links, an empty folder', async () => {
  const local = join(node.folder, 'tree');
  mkdirSync(join(local, 'sub/empty'), { recursive: true });
  writeFileSync(join(local, 'sub/näme with space'), 'content', { mode: 0o755 });
  symlinkSync('sub/näme with space', join(local, 'link'));
  await sandbox.files.uploadDirectory(local, '/srv/tree');
  expect(
    await sandbox.out(
      'cd /srv/tree && cat link && stat -c %a "sub/näme with space" && ls -A sub/empty | wc -l',
    ),
  ).toBe('content755\n0');
  const back = join(node.folder, 'back');
  await sandbox.files.downloadDirectory('/srv/tree', back);
  expect(readFileSync(join(back, 'link'), 'utf8')).toBe('content');
  expect(readFileSync(join(back, 'sub/näme with space'), 'utf8')).toBe('content');
});

it('lets no archive out of its folder: neither by dots, nor through a link', async () => {
  const archives = [
    [{ name: '../escaped-dots', content: 'x' }],
    [{ name: '/escaped-absolute/../../escaped-dots', content: 'x' }],
    [
      { name: 'out', type: 'symlink' as const, linkName: '/var/escape' },
      { name: 'out/escaped-link', content: 'x' },
    ],
  ];
  await sandbox.out('mkdir -p /var/escape /srv/jail');
  for (const entries of archives) {
    await sandbox.files.uploadTar(Readable.from([buildTar(entries)]), '/srv/jail').catch(() => undefined);
  }
  expect(await sandbox.out('find / -xdev -name "escaped-*" -not -path "/srv/jail/*"')).toBe('');
});

it('refuses a broken archive', async () => {
  const half = buildTar([{ name: 'half', content: Buffer.alloc(100_000, 'x') }]).subarray(0, 50_000);
  await expect(sandbox.files.uploadTar(Readable.from([half]), '/srv/broken')).rejects.toThrow();
});

it('refuses what the disk cannot hold, says so, and leaves nothing of it', async () => {
  await sandbox.python(
    "import ctypes, os; os.mkdir('/full'); assert not ctypes.CDLL(None).mount(b'none', b'/full', b'tmpfs', 0, b'size=1m')",
  );
  const content = new SeededRandom(2).bytes(4 * 2 ** 20);
  await expect(sandbox.files.uploadStream(content, '/full/file')).rejects.toMatchObject({ status: 507 });
  expect(await sandbox.out('ls -A /full | wc -l')).toBe('0');
});

it('leaves nothing of an upload whose client goes away', async () => {
  const abort = new AbortController();
  async function* endless() {
    for (let n = 0; ; n++) {
      if (n === 40) abort.abort();
      yield Buffer.alloc(64 * 1024, 'x');
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  const upload = sandbox.files.uploadStream(endless(), '/srv/gone/file', { signal: abort.signal });
  await expect(upload).rejects.toThrow();
  await sandbox.until(
    'nothing is left',
    async () => (await sandbox.out('ls -A /srv/gone 2>/dev/null | wc -l')) === '0',
  );
});

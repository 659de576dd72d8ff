/** Full disks: the host's while an image comes in or is built, the sandbox's own. Each is said, and leaves nothing. */
import { randomBytes } from 'node:crypto';
import { buildTar } from '@sandlot/images/testing/tar-fixture';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freeBytes, withFree } from '../driver/full-disk.js';
import { RegistryProcess } from '../driver/registry-process.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { imageArchive, staticProgram, tellingProgram } from '../driver/test-images.js';
import { TestNode } from '../driver/test-node.js';

let node: TestNode;
let registry: RegistryProcess;
const mib = 2 ** 20;
const imageMiB = 30;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false, dataMiB: 700 });
  registry = await RegistryProcess.start(node.namespace);
  const tell = { name: 'tell', content: staticProgram(tellingProgram), mode: 0o755 };
  const fill = { name: 'fill', content: staticProgram(fillProgram), mode: 0o755 };
  await node.importArchive(await imageArchive([tell, fill]), 'scratch:1');
  const large = { name: 'large', content: randomBytes(imageMiB * mib) };
  await registry.layout.addImage({ tag: 'large', layers: [{ tar: buildTar([tell, large]) }] });
});
afterAll(async () => {
  await registry?.close();
  await node?.close();
});

/** Takes all room of the root file system but so many MiB. */
const fillProgram = `
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
int main(int argc, char **argv) {
  struct statvfs root;
  int file = open("/ballast", O_CREAT | O_WRONLY, 0600);
  if (file < 0 || statvfs("/", &root)) return 1;
  return posix_fallocate(file, 0, (off_t)root.f_bavail * root.f_bsize - (atol(argv[1]) << 20));
}
`;

const free = () => freeBytes(node);

async function expectDiskFull(): Promise<void> {
  const sandbox = await node.request({ image: registry.reference('large') });
  const report = await sandbox.untilState('failed', 'running');
  expect(report).toMatchObject({ state: 'failed', reason: 'START_FAILED' });
  expect(report.message).toContain(registry.reference('large'));
  expect(report.message).toMatch(/disk .*full|MiB left/);
  await sandbox.delete();
}

it('the sandbox’s own: the upload is refused, nothing of it stays, and the sandbox lives', async () => {
  const sandbox = await node.create({ image: 'scratch:1' });
  expect((await sandbox.run(['/fill', '20'])).exitCode).toBe(0);
  const content = new SeededRandom(5).bytes(30 * mib);
  await expect(sandbox.files.uploadStream(content, '/dir/large')).rejects.toMatchObject({ status: 507 });
  await expect(sandbox.files.stat('/dir/large')).rejects.toMatchObject({ status: 404 });
  await sandbox.files.uploadStream(content.subarray(0, 10 * mib), '/dir/small');
  expect((await sandbox.files.stat('/dir/small')).size).toBe(10 * mib);
  await sandbox.delete();
});

it('the host’s, while an image is pulled, and while it is built; with room again it starts', async () => {
  const before = free();
  await withFree(node, imageMiB - 10, expectDiskFull);
  expect(before - free()).toBeLessThan(2 * mib);
  await withFree(node, imageMiB + 10, expectDiskFull);
  // The image is here, its root file system is not.
  expect(before - free()).toBeLessThan((imageMiB + 2) * mib);
  const sandbox = await node.create({ image: registry.reference('large') });
  expect((await sandbox.run(['/tell'])).exitCode).toBe(0);
  expect((await sandbox.files.stat('/large')).size).toBe(imageMiB * mib);
  await sandbox.delete();
});

it('the host’s, while an archive is imported', async () => {
  const archive = await imageArchive([{ name: 'large', content: randomBytes(imageMiB * mib) }]);
  const before = free();
  await withFree(node, imageMiB - 10, () =>
    expect(node.importArchive(archive, 'imported:1')).rejects.toThrow(/disk .*full/),
  );
  expect(before - free()).toBeLessThan(2 * mib);
});

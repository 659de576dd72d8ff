/** What an image says of itself holds in the machine; images that cannot be used are refused with the reason. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { imageArchive, staticProgram, tellingProgram } from '../driver/test-images.js';
import { TestNode } from '../driver/test-node.js';

let node: TestNode;
let tell: Buffer;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
  tell = staticProgram(tellingProgram);
  const accounts = [
    { name: 'etc/', type: 'dir' as const, mode: 0o755 },
    { name: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/none\n' },
    { name: 'etc/group', content: 'root:x:0:\napp:x:1001:\nextra:x:2000:app\n' },
    { name: 'etc/resolv.conf', type: 'symlink' as const, linkName: '../run/nowhere/resolv.conf' },
    { name: 'opt/', type: 'dir' as const, mode: 0o755 },
    { name: 'opt/bin/', type: 'dir' as const, mode: 0o755 },
    { name: 'opt/bin/tell', content: tell, mode: 0o755 },
  ];
  const config = {
    User: 'app',
    WorkingDir: '/work/made',
    Env: ['PATH=/opt/bin', 'FROM_IMAGE=image', 'WITH=a=b'],
    Entrypoint: ['tell', 'fixed'],
    Cmd: ['default', '--exit', '5'],
  };
  await node.importArchive(await imageArchive(accounts, { config }), 'configured:1');
  await node.importArchive(await imageArchive([{ name: 'tell', content: tell, mode: 0o755 }]), 'scratch:1');
});
afterAll(() => node?.close());

it('USER, its groups and HOME, WORKDIR, ENV and PATH of the image hold for a command', async () => {
  const sandbox = await node.create({ image: 'configured:1' });
  const { stdout, exitCode } = await sandbox.run(['tell', 'x']);
  expect(exitCode).toBe(0);
  const lines = stdout.split('\n');
  expect(lines[0]).toMatch(/^uid=1000 gid=1001 groups=/);
  expect((lines[0]?.split('groups=')[1] ?? '').split(',')).toContain('2000');
  expect(lines).toContain('cwd=/work/made');
  expect(lines).toEqual(
    expect.arrayContaining([
      'env FROM_IMAGE=image',
      'env WITH=a=b',
      'env PATH=/opt/bin',
      'env HOME=/home/app',
    ]),
  );
  const asRoot = (
    await sandbox.run(['tell'], { user: 'root', cwd: '/', env: { FROM_IMAGE: 'exec' } })
  ).stdout.split('\n');
  expect(asRoot[0]).toMatch(/^uid=0 gid=0 /);
  expect(asRoot).toEqual(expect.arrayContaining(['cwd=/', 'env FROM_IMAGE=exec', 'env HOME=/root']));
  const byNumber = await sandbox.run(['tell'], { user: '77:88' });
  expect(byNumber.stdout).toMatch(/^uid=77 gid=88 /);
  // A dangling link of the image is replaced, not followed.
  expect((await sandbox.files.readFile('/etc/resolv.conf')).content).toContain('nameserver');
  expect(await sandbox.files.stat('/work/made')).toMatchObject({ kind: 'directory', uid: 0, gid: 0 });
  await sandbox.files.uploadStream(Buffer.from('x'), '/work/made/file');
  expect(await sandbox.files.stat('/work/made/file')).toMatchObject({ uid: 1000, gid: 1001 });
  await sandbox.delete();
});

it('ENTRYPOINT and CMD are the start command when asked for, and only then', async () => {
  const started = await node.create({ image: 'configured:1', startCommand: { entrypoint: true } });
  await started.until('the start command has ended', async () => (await started.report()).exitCode === 5);
  const logs = await started.logs();
  expect(logs).toContain('arg=tell\narg=fixed\narg=default\narg=--exit\narg=5\n');
  expect(logs).toContain('uid=1000');
  expect((await started.report()).state).toBe('running');
  const report = await started.delete();
  expect(report.state).toBe('stopped');
  const plain = await node.create({ image: 'configured:1' });
  expect(await plain.logs()).toBe('');
  await plain.delete();
});

it('an image of one static program and nothing else runs, and files work', async () => {
  const sandbox = await node.create({ image: 'scratch:1' });
  const result = await sandbox.run(['/tell', '--exit', '9']);
  expect(result).toMatchObject({ exitCode: 9, stderr: '' });
  expect(result.stdout).toMatch(/^uid=0 gid=0/);
  expect(result.stdout).toContain('cwd=/\n');
  expect((await sandbox.run(['/bin/sh', '-c', 'true'])).exitCode).toBe(127);
  await sandbox.files.uploadStream(tell, '/made/second');
  expect((await sandbox.files.readFile('/proc/1/comm')).content).not.toBe('');
  await sandbox.delete();
});

it('a start command that cannot be run leaves a sandbox that lives, with exit code and reason', async () => {
  const sandbox = await node.create({
    image: 'scratch:1',
    startCommand: { argv: ['/bin/sh', '-c', 'true'] },
  });
  await sandbox.until('its end is known', async () => (await sandbox.report()).exitCode === 127);
  expect(await sandbox.logs()).not.toBe('');
  expect((await sandbox.run(['/tell'])).exitCode).toBe(0);
  await sandbox.delete();
});

it('an image of another architecture is refused by name', async () => {
  const archive = await imageArchive([{ name: 'x', content: 'x' }], {
    platform: { os: 'linux', architecture: 's390x' },
  });
  await expect(node.importArchive(archive, 'foreign:1')).rejects.toThrow(/s390x/);
});

it('an archive whose content does not fit its digests is refused', async () => {
  const archive = await imageArchive([{ name: 'file', content: 'GENUINE-CONTENT' }]);
  const at = archive.indexOf('GENUINE-CONTENT');
  expect(at).toBeGreaterThan(0);
  archive.write('ALTERED-CONTENT', at);
  await expect(node.importArchive(archive, 'altered:1')).rejects.toThrow(/digest|sha256/i);
  const whole = await imageArchive([{ name: 'file', content: Buffer.alloc(100_000, 'z') }]);
  await expect(node.importArchive(whole.subarray(0, whole.length / 2), 'half:1')).rejects.toThrow();
  const { images } = await node.ask<{ images: { reference: string }[] }>('GET', '/v1/images');
  expect(images).toHaveLength(2);
});

it('a registry that cannot be reached ends the sandbox, and names it', async () => {
  const sandbox = await node.request({ image: '127.0.0.1:9/no/such:1' });
  const report = await sandbox.untilState('failed');
  expect(report).toMatchObject({ reason: 'IMAGE_PULL_FAILED' });
  expect(report.message).toContain('127.0.0.1:9');
  await sandbox.delete();
});

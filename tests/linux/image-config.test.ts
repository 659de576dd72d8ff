/** Who and where a command is, by the image's USER, WORKDIR, ENV, ENTRYPOINT and CMD: the same on every way to run one. */
import type { ImageFixture } from '@sandlot/images/testing/layout-fixture';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  accountEntries,
  busyboxEntries,
  imageArchive,
  staticProgram,
  tellingProgram,
} from '../driver/test-images.js';
import { TestNode, type TestSpec } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

let node: TestNode;
let tell: Buffer;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
  tell = staticProgram(tellingProgram);
});
afterAll(() => node?.close());

let images = 0;

/** A sandbox of an image with accounts, busybox, `/opt/bin/tell`, and this configuration. */
async function sandboxOf(config: ImageFixture['config'], spec: TestSpec = {}): Promise<TestSandbox> {
  const name = `configured:${images++}`;
  const entries = [
    ...busyboxEntries(),
    ...accountEntries(),
    { name: 'opt/bin/tell', content: tell, mode: 0o755 },
    { name: 'srv/app', type: 'dir' as const, uid: 1000, gid: 1001, mode: 0o750 },
    { name: 'srv/link', type: 'symlink' as const, linkName: '/srv/app' },
  ];
  await node.importArchive(await imageArchive(entries, { config: config ?? {} }), name);
  return node.create({ image: name, ...spec });
}

/** What `tell` said: its first lines, by name. */
function told(text: string): { who: string; cwd: string; env: Map<string, string>; args: string[] } {
  const [who = '', ...lines] = text.split('\n');
  const after = (prefix: string) =>
    lines.filter((line) => line.startsWith(prefix)).map((line) => line.slice(prefix.length));
  const env = after('env ').map(
    (line) => [line.split('=')[0] ?? '', line.slice(line.indexOf('=') + 1)] as const,
  );
  return { who, cwd: after('cwd=')[0] ?? '', env: new Map(env), args: after('arg=') };
}

/** The log of a start command that is known to have ended. */
async function logOf(sandbox: TestSandbox): Promise<string> {
  await sandbox.until(
    'the start command has ended',
    async () => (await sandbox.report()).exitCode !== undefined,
  );
  return sandbox.logs();
}

/** Prime's exec, by the gateway. */
async function primeExec(
  sandbox: TestSandbox,
  command: string,
): Promise<{ stdout: string; exit_code: number }> {
  const answer = await fetch(`${node.bridge.url}/gw/test/${sandbox.id}/exec`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${node.bridge.token(sandbox.id, 1)}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify({ command }),
  });
  return (await answer.json()) as { stdout: string; exit_code: number };
}

describe('USER', () => {
  it.each([
    ['left out', undefined, 'uid=0 gid=0 groups=0', '/root'],
    ['a number with an account', '1000', 'uid=1000 gid=1001 groups=1001,2000', '/home/app'],
    ['a name and a group', 'app:extra', 'uid=1000 gid=2000 groups=2000', '/home/app'],
    ['two numbers', '1000:2000', 'uid=1000 gid=2000 groups=2000', '/home/app'],
    ['a number without an account', '4242', 'uid=4242 gid=0 groups=0', '/'],
    ['two numbers without accounts', '4242:4343', 'uid=4242 gid=4343 groups=4343', '/'],
    ['above 16 bits', '3000000:3000001', 'uid=3000000 gid=3000001 groups=3000001', '/'],
    ['a name whose home does not exist', 'nobody', 'uid=65534 gid=65534 groups=65534', '/nowhere'],
  ])('%s (%s)', async (_what, user, who, home) => {
    const config = { Env: ['PATH=/opt/bin:/bin'], ...(user === undefined ? {} : { User: user }) };
    const sandbox = await sandboxOf(config, { startCommand: { argv: ['tell'] } });
    const seen = [
      (await sandbox.run(['tell'])).stdout,
      (await sandbox.run(['tell'], { session: true })).stdout,
      (await primeExec(sandbox, 'tell')).stdout,
      await logOf(sandbox),
    ].map(told);
    expect(seen.map((one) => [one.who, one.env.get('HOME')])).toEqual(Array(4).fill([who, home]));
    await sandbox.delete();
  });

  it('a name that the image does not know: each command says so, root still works', async () => {
    const sandbox = await sandboxOf(
      { User: 'ghost', Env: ['PATH=/opt/bin'] },
      { startCommand: { argv: ['tell'] } },
    );
    const refused = await sandbox.run(['tell']);
    expect(refused.exitCode).toBe(126);
    expect(refused.stderr).toContain('ghost');
    expect(await logOf(sandbox)).toContain('ghost');
    expect(told((await sandbox.run(['tell'], { user: 'root' })).stdout).who).toBe('uid=0 gid=0 groups=0');
    await sandbox.delete();
  });
});

describe('WORKDIR', () => {
  it.each([
    ['is made for root, as Docker does it, though the user is another', '/new/deep', '/new/deep', '0:0 755'],
    ['keeps the owner that the image gave it', '/srv/app', '/srv/app', '1000:1001 750'],
    ['may be relative to the root', 'srv/made', '/srv/made', '0:0 755'],
    ['may lead through a link', '/srv/link', '/srv/app', '1000:1001 750'],
    ['is the root if left out', '', '/', undefined],
  ])('%s', async (_what, workingDir, cwd, owner) => {
    const config = { User: 'app', WorkingDir: workingDir, Env: ['PATH=/opt/bin:/bin'] };
    const sandbox = await sandboxOf(config, { startCommand: { argv: ['tell'] } });
    expect(told((await sandbox.run(['tell'])).stdout).cwd).toBe(cwd);
    expect(told(await logOf(sandbox)).cwd).toBe(cwd);
    if (owner) expect(await sandbox.out(`stat -c '%u:%g %a' ${cwd}`)).toBe(owner);
    await sandbox.out('mkdir -p below', { user: 'root' });
    expect(told((await sandbox.run(['tell'], { cwd: 'below' })).stdout).cwd).toBe(
      `${cwd === '/' ? '' : cwd}/below`,
    );
    await sandbox.delete();
  });
});

describe('ENV', () => {
  it('arrives whole on every way to run a command, and PATH finds the programs', async () => {
    const values = {
      EQUALS: 'a=b=c',
      QUOTED: `it's "quoted" $HOME \\n %s`,
      EMPTY: '',
      UMLAUT: 'Zürich 東京 😀',
      LONG: 'x'.repeat(100_000),
    };
    const lines = Object.entries(values).map(([name, value]) => `${name}=${value}`);
    const config = { Env: ['PATH=/opt/bin:/bin', ...lines] };
    const sandbox = await sandboxOf(config, { startCommand: { argv: ['tell'] } });
    for (const text of [
      (await sandbox.run(['tell'])).stdout,
      (await sandbox.run(['tell'], { session: true })).stdout,
      (await primeExec(sandbox, 'tell')).stdout,
      await logOf(sandbox),
    ]) {
      const { env } = told(text);
      for (const [name, value] of Object.entries(values)) expect(env.get(name)).toBe(value);
      expect(env.get('PATH')).toBe('/opt/bin:/bin');
    }
    const process = await sandbox.exec(['tell'], { pty: { cols: 80, rows: 24 } });
    let terminal = '';
    for await (const { data } of process.output) terminal += Buffer.from(data).toString();
    expect(terminal).toContain('env EQUALS=a=b=c\r\n');
    expect((await process.wait()).exitCode).toBe(0);
    await sandbox.delete();
  });

  it('a command’s own PATH goes before the image’s, which has Docker’s default if it sets none', async () => {
    const sandbox = await sandboxOf({});
    expect((await sandbox.run(['tell'])).exitCode).toBe(127);
    expect((await sandbox.run(['tell'], { env: { PATH: '/opt/bin' } })).exitCode).toBe(0);
    expect(await sandbox.out('echo $PATH')).toBe(
      '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    );
    await sandbox.delete();
  });
});

describe('ENTRYPOINT and CMD', () => {
  it('swallow nothing: a start command is run as it is, and commands likewise', async () => {
    const config = { Entrypoint: ['/opt/bin/tell', '--exit', '3'], Cmd: ['x'] };
    const sandbox = await sandboxOf(config, { startCommand: { argv: ['/opt/bin/tell', 'mine'] } });
    expect(told(await logOf(sandbox)).args).toEqual(['/opt/bin/tell', 'mine']);
    expect((await sandbox.report()).exitCode).toBe(0);
    expect(await sandbox.out('echo plain')).toBe('plain');
    await sandbox.delete();
  });

  it.each([
    ['null', { Entrypoint: null, Cmd: null }, undefined],
    ['empty lists', { Entrypoint: [], Cmd: [] }, undefined],
    ['CMD alone', { Cmd: ['/opt/bin/tell', '', 'a b', '$HOME'] }, ['/opt/bin/tell', '', 'a b', '$HOME']],
    ['CMD for a shell', { Cmd: ['/bin/sh', '-c', '/opt/bin/tell "a b"'] }, ['/opt/bin/tell', 'a b']],
    ['ENTRYPOINT alone', { Entrypoint: ['/opt/bin/tell', 'e'], Cmd: null }, ['/opt/bin/tell', 'e']],
    ['a text where a list belongs', { Entrypoint: '/opt/bin/tell', Cmd: 'x' }, ['/opt/bin/tell', 'x']],
  ])('%s, asked for', async (_what, config, args) => {
    const sandbox = await sandboxOf(config, { startCommand: { entrypoint: true } });
    if (args) expect(told(await logOf(sandbox)).args).toEqual(args);
    else expect(await sandbox.logs()).toBe('');
    expect((await sandbox.report()).state).toBe('running');
    expect(await sandbox.out('echo alive')).toBe('alive');
    await sandbox.delete();
  });
});

/** Logins at registries: from Docker's file, from flags, and never where somebody may listen. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { makeContext } from '../src/context.js';
import { dockerCredentials } from '../src/registry-credentials.js';
import type { FakeApi } from './fake-api.js';
import { openForEachTest, type World } from './world.js';

let api: FakeApi;
let world: World;
openForEachTest((made) => {
  ({ api, world } = made);
});

const base64 = (text: string) => Buffer.from(text).toString('base64');

function writeDockerConfig(content: unknown, folder = path.join(world.home, '.docker')): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    path.join(folder, 'config.json'),
    typeof content === 'string' ? content : JSON.stringify(content),
  );
}

describe("Docker's file", () => {
  const auths = {
    'https://index.docker.io/v1/': { auth: base64('hub:h:w') },
    'quay.io': { auth: base64('quay:q') },
    'quay.io/team': { username: 'team', password: 't' },
    'https://reg.test:5000': { auth: base64('reg:r') },
    'helper.test': {},
    'broken.test': { auth: base64('nocolon') },
  };
  const contextOf = (url: string) =>
    makeContext({
      env: { SANDLOT_URL: url },
      stdin: Readable.from([]),
      stdout: process.stdout,
      stderr: Object.assign(process.stderr),
      homeFolder: world.home,
      isRoot: false,
      onSignal: () => () => undefined,
    } as unknown as Parameters<typeof makeContext>[0]);

  it.each([
    ['python:3.11', { username: 'hub', password: 'h:w' }],
    ['someone/image', { username: 'hub', password: 'h:w' }],
    ['docker.io/library/python', { username: 'hub', password: 'h:w' }],
    ['quay.io/other/x:1', { username: 'quay', password: 'q' }],
    [`quay.io/team/x@sha256:${'a'.repeat(64)}`, { username: 'team', password: 't' }],
    ['quay.io/teammate/x', { username: 'quay', password: 'q' }],
    ['reg.test:5000/x', { username: 'reg', password: 'r' }],
    ['reg.test/x', undefined],
    ['helper.test/x', undefined],
    ['broken.test/x', undefined],
    ['localhost/x', undefined],
  ])('has for %s what Docker would take', (image, expected) => {
    writeDockerConfig({ auths });
    expect(dockerCredentials(contextOf('http://127.0.0.1:7070'), image)).toEqual(expected);
  });

  it('is found by DOCKER_CONFIG, and harmless when it is broken', async () => {
    const folder = path.join(world.home, 'elsewhere');
    writeDockerConfig({ auths }, folder);
    world.env['DOCKER_CONFIG'] = folder;
    await world.run(['image', 'pull', 'quay.io/x']);
    expect(api.pulls).toEqual([{ reference: 'quay.io/x', auth: { username: 'quay', password: 'q' } }]);
    writeDockerConfig('{', folder);
    const { code, stderr } = await world.run(['image', 'pull', 'quay.io/x']);
    expect([code, api.pulls.at(-1)]).toEqual([0, { reference: 'quay.io/x' }]);
    expect(stderr).toContain('is not valid JSON');
  });

  it('is not sent where somebody may listen', () => {
    writeDockerConfig({ auths });
    expect(dockerCredentials(contextOf('http://server.test:7070'), 'quay.io/x')).toBeUndefined();
    expect(dockerCredentials(contextOf('https://server.test'), 'quay.io/x')).toBeDefined();
  });

  it('says so when a credential helper holds the login', async () => {
    writeDockerConfig({
      auths: { 'https://index.docker.io/v1/': {} },
      credsStore: 'desktop',
      credHelpers: { 'gcr.io': 'gcloud' },
    });
    const pull = async (name: string) => (await world.run(['image', 'pull', name])).stderr;
    expect(await pull('python:3.11')).toMatch(
      /docker\.io is held by .*"desktop".*--password-stdin python:3\.11/,
    );
    expect(await pull('gcr.io/x')).toMatch(/gcr\.io is held by .*"gcloud"/);
    expect(await pull('quay.io/x')).not.toContain('is held by');
    expect((await world.run(['create', 'gcr.io/x'])).stderr).toContain('"gcloud"');
    api.intercept = (_method, at) =>
      at.startsWith('/images/local/') ? { status: 200, body: { reference: 'gcr.io/x' } } : undefined;
    expect((await world.run(['create', 'gcr.io/x'])).stderr).not.toContain('"gcloud"');
  });

  it('does not make `create --no-wait` wait, nor a refused login fail it', async () => {
    writeDockerConfig({ auths });
    const quick = await world.run(['create', '--no-wait', 'quay.io/x']);
    expect([quick.code, api.pulls.length, api.creates.length]).toEqual([0, 0, 1]);
    expect(quick.stderr).toContain('`sandlot image pull quay.io/x` first');
    let code = 'unauthorized';
    api.intercept = (_method, at) =>
      at === '/images/local:pull' ? { status: 200, body: { error: { code, message: 'no' } } } : undefined;
    const refused = await world.run(['create', 'quay.io/x']);
    expect([refused.code, api.creates.length]).toEqual([0, 2]);
    expect(refused.stderr).toContain('no; going on without the login');
    code = 'no-space';
    expect((await world.run(['create', 'quay.io/x'])).code).not.toBe(0);
    expect(api.creates).toHaveLength(2);
  });

  it('serves `create` and `run --image` of an image that the server does not have', async () => {
    writeDockerConfig({ auths });
    expect((await world.run(['create', 'quay.io/x'])).code).toBe(0);
    expect((await world.run(['run', '--image', 'quay.io/x', 'true'])).code).toBe(0);
    expect(api.pulls.map(({ auth }) => auth)).toEqual([
      { username: 'quay', password: 'q' },
      { username: 'quay', password: 'q' },
    ]);
    expect(JSON.stringify(api.creates)).not.toContain('quay"');
    api.intercept = (_method, at) =>
      at.startsWith('/images/local/') ? { status: 200, body: { reference: 'quay.io/x' } } : undefined;
    expect((await world.run(['create', 'quay.io/x'])).code).toBe(0);
    expect((await world.run(['create', 'python:3.11'])).code).toBe(0);
    expect((await world.run(['create', 'reg.test/x'])).code).toBe(0);
    expect(api.pulls).toHaveLength(2);
  });
});

describe('flags', () => {
  it("go before Docker's file; the end of line is not the password's", async () => {
    writeDockerConfig({ auths: { 'quay.io': { auth: base64('quay:q') } } });
    const { code, stdout, stderr } = await world.run(
      ['image', 'pull', 'quay.io/x', '--username', 'me', '--password-stdin'],
      { stdin: 's3cret \n' },
    );
    expect(code).toBe(0);
    expect(api.pulls).toEqual([{ reference: 'quay.io/x', auth: { username: 'me', password: 's3cret ' } }]);
    expect(stdout + stderr).not.toContain('s3cret');
  });

  it.each([
    [['--username', 'me'], {}, /--password-stdin is missing/],
    [['--password-stdin'], { stdin: 'x' }, /--username is missing/],
    [['--username', 'me', '--password-stdin'], {}, /nothing came on standard input/],
    [['--username', 'me', '--password-stdin'], { tty: true }, /is a terminal/],
    [['--username', 'me', '--password-stdin'], { stdin: 'x'.repeat(70_000) }, /is no password/],
  ])('%j are refused when they do not fit', async (flags, input, expected) => {
    const { code, stderr } = await world.run(['image', 'pull', 'quay.io/x', ...flags], input);
    expect(code).toBe(2);
    expect(stderr).toMatch(expected);
    expect(api.pulls).toEqual([]);
  });
});

/** Pulling from a registry: authentication, faults, resumption, and what the user is told. */
import { readFile, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { LayoutFixture } from '../src/testing/layout-fixture.js';
import { expectSameBytes } from '../src/testing/mounted-rootfs.js';
import { buildTar } from '../src/testing/tar-fixture.js';
import { TestRegistry, type TestRegistryOptions } from '../src/testing/test-registry.js';
import { afterThisTest, failureOf, scratchFolder, scratchStore } from './scratch.js';

const BIG = Buffer.alloc(3 << 20, 'incompressible? no, but large enough for several chunks ');

async function makeLayout(): Promise<{ layout: LayoutFixture; layer: string; digest: string }> {
  const layout = await LayoutFixture.create(join(await scratchFolder(), 'layout'));
  const manifest = await layout.addImage({
    layers: [
      { tar: buildTar([{ name: 'big', content: BIG }]) },
      { tar: buildTar([{ name: 'b' }]), compression: 'gzip' },
    ],
    config: {
      Env: ['A=b=c'],
      User: 'daemon',
      WorkingDir: '/w',
      Labels: { k: 'v' },
      ExposedPorts: { '80/tcp': {} },
    },
    tag: 'v1',
  });
  const { layers } = JSON.parse(await readFile(layout.blobPath(manifest.digest), 'utf8'));
  return { layout, layer: layers[0].digest, digest: manifest.digest };
}

async function startRegistry(
  layout: LayoutFixture,
  options: Omit<TestRegistryOptions, 'repositories'> = {},
): Promise<TestRegistry> {
  const registry = await TestRegistry.start({ repositories: { 'team/app': layout.folder }, ...options });
  afterThisTest(() => registry.close());
  return registry;
}

/** What was pulled through the faults is, byte for byte, what an import of the layout gives. */
async function expectSameRootfs(registry: TestRegistry, layout: LayoutFixture): Promise<void> {
  const [pulled, imported] = [await scratchStore(), await scratchStore()];
  await imported.importFolder(layout.folder, 'app:v1');
  const expected = await imported.acquire('app:v1', 'h');
  const actual = await pulled.acquire(`${registry.host}/team/app:v1`, 'h');
  expectSameBytes(actual.path, expected.path);
}

describe('a pull', () => {
  test('brings the image, and a second one fetches only the manifest', async () => {
    const { layout, digest } = await makeLayout();
    const registry = await startRegistry(layout);
    const store = await scratchStore();
    const progress: number[] = [];
    const image = await store.pull(`${registry.host}/team/app:v1`, {
      onProgress: ({ stage, doneBytes, totalBytes }) => {
        if (stage === 'download') progress.push(doneBytes / totalBytes);
      },
    });
    expect(image).toMatchObject({
      reference: `${registry.host}/team/app:v1`,
      digest,
      platform: { os: 'linux' },
      config: {
        env: ['A=b=c'],
        user: 'daemon',
        workingDir: '/w',
        labels: { k: 'v' },
        exposedPorts: ['80/tcp'],
      },
    });
    expect(image.layers).toHaveLength(2);
    expect(progress.at(-1)).toBe(1);
    expect([...progress].sort((a, b) => a - b)).toEqual(progress);
    const before = registry.requests.length;
    await store.pull(`${registry.host}/team/app:v1`);
    expect(registry.requests.slice(before).map(({ path }) => path)).toEqual(['/v2/team/app/manifests/v1']);
  });

  test('by digest, and `acquire` without a second look-up', async () => {
    const { layout, digest } = await makeLayout();
    const registry = await startRegistry(layout);
    const store = await scratchStore();
    await store.pull(`${registry.host}/team/app@${digest}`);
    const before = registry.requests.length;
    expect(await store.isReady(`${registry.host}/team/app@${digest}`)).toBe(false);
    const hold = await store.acquire(`${registry.host}/team/app@${digest}`, 'h');
    expect(hold.image.digest).toBe(digest);
    expect(registry.requests.length).toBe(before);
    expect((await store.get(digest.slice(0, 20)))!.holders).toBe(1);
  });
});

describe('authentication', () => {
  const user = { username: 'u', password: 'p:w' };

  test.each(['basic', 'bearer'] as const)('%s with the right and the wrong password', async (kind) => {
    const { layout } = await makeLayout();
    const registry = await startRegistry(layout, { auth: { kind, ...user } });
    const store = await scratchStore();
    const name = `${registry.host}/team/app:v1`;
    expect(await failureOf(store.pull(name))).toMatchObject({ code: 'unauthorized' });
    const wrong = await failureOf(store.pull(name, { auth: { username: 'u', password: 'no' } }));
    expect(wrong).toMatchObject({ code: 'unauthorized' });
    expect(wrong.message).not.toContain('p:w');
    expect((await store.pull(name, { auth: user })).layers).toHaveLength(2);
  });

  test('a pull with credentials does not share the failure of one without, of another user, or with another password', async () => {
    const { layout } = await makeLayout();
    const registry = await startRegistry(layout, { auth: { kind: 'bearer', ...user } });
    const store = await scratchStore();
    const name = `${registry.host}/team/app:v1`;
    const [anonymous, stranger, mistaken, image] = await Promise.all([
      failureOf(store.pull(name)),
      failureOf(store.pull(name, { auth: { username: 'stranger', password: 'x' } })),
      failureOf(store.pull(name, { auth: { ...user, password: 'x' } })),
      store.pull(name, { auth: user }),
    ]);
    for (const { code } of [anonymous, stranger, mistaken]) expect(code).toBe('unauthorized');
    expect(image.layers).toHaveLength(2);
  });

  test('an anonymous token is enough where the registry gives one', async () => {
    const { layout } = await makeLayout();
    const registry = await startRegistry(layout, {
      auth: { kind: 'bearer', ...user, isAnonymousAllowed: true },
    });
    const store = await scratchStore();
    expect((await store.pull(`${registry.host}/team/app:v1`)).layers).toHaveLength(2);
    expect(registry.seen('/token')).toHaveLength(1);
  });

  test('credentials never follow a redirect to another host', async () => {
    const { layout } = await makeLayout();
    const storage = await startRegistry(layout);
    const registry = await startRegistry(layout, {
      auth: { kind: 'basic', ...user },
      redirectBlobsTo: () => `http://${storage.host}`,
    });
    const store = await scratchStore();
    await store.pull(`${registry.host}/team/app:v1`, { auth: user });
    expect(registry.seen('/blobs/').every(({ authorization }) => authorization !== undefined)).toBe(true);
    expect(storage.seen('/blobs/').length).toBeGreaterThan(0);
    expect(storage.requests.every(({ authorization }) => authorization === undefined)).toBe(true);
  });
});

describe('a bad network', () => {
  test('a broken transfer goes on where it stopped', async () => {
    const { layout, layer } = await makeLayout();
    const registry = await startRegistry(layout, {
      fault: (path, count) =>
        path.endsWith(layer) && count <= 3 ? { kind: 'cut', afterBytes: 700_000 } : undefined,
    });
    await expectSameRootfs(registry, layout);
    const ranges = registry.seen(layer).map(({ range }) => Number(/[0-9]+/.exec(range ?? '0')![0]));
    expect(ranges).toHaveLength(4);
    expect([...ranges].sort((a, b) => a - b)).toEqual(ranges);
    expect(ranges.at(-1)).toBeGreaterThan(0);
  });

  test('it starts again where the registry knows no Range', async () => {
    const { layout, layer } = await makeLayout();
    const registry = await startRegistry(layout, {
      ignoresRange: true,
      fault: (path, count) =>
        path.endsWith(layer) && count === 1 ? { kind: 'cut', afterBytes: 700_000 } : undefined,
    });
    await expectSameRootfs(registry, layout);
  });

  test('503, a reset and silence are tried again', async () => {
    const { layout } = await makeLayout();
    const faults = [{ kind: 'status', status: 503 }, { kind: 'reset' }] as const;
    const registry = await startRegistry(layout, {
      fault: (path, count) => (path.includes('/manifests/') ? faults[count - 1] : undefined),
    });
    const store = await scratchStore();
    expect((await store.pull(`${registry.host}/team/app:v1`)).layers).toHaveLength(2);
    const silent = await startRegistry(layout, {
      fault: (path, count) => (path.includes('/manifests/') && count === 1 ? { kind: 'hang' } : undefined),
    });
    const impatient = await scratchStore({ retry: { tries: 3, baseMs: 10, silenceMs: 200 } });
    expect((await impatient.pull(`${silent.host}/team/app:v1`)).layers).toHaveLength(2);
  });

  test('429 waits as long as the registry asks', async () => {
    const { layout } = await makeLayout();
    const registry = await startRegistry(layout, {
      fault: (path, count) =>
        path.includes('/manifests/') && count === 1
          ? { kind: 'status', status: 429, headers: { 'retry-after': '1' } }
          : undefined,
    });
    const store = await scratchStore();
    const start = Date.now();
    await store.pull(`${registry.host}/team/app:v1`);
    expect(Date.now() - start).toBeGreaterThanOrEqual(1000);
  });

  test('429 for longer is told, with the time', async () => {
    const { layout } = await makeLayout();
    const body = '{"errors":[{"code":"TOOMANYREQUESTS","message":"pull rate limit"}]}';
    const registry = await startRegistry(layout, {
      fault: (path) =>
        path.includes('/manifests/')
          ? { kind: 'status', status: 429, headers: { 'retry-after': '7200' }, body }
          : undefined,
    });
    const failure = await failureOf((await scratchStore()).pull(`${registry.host}/team/app:v1`));
    expect(failure.code).toBe('rate-limited');
    expect(failure.message).toMatch(/pull rate limit.*7200 seconds/);
    expect(registry.seen('/manifests/')).toHaveLength(1);
  });

  test('an unreachable registry is told after a few tries', async () => {
    const { layout } = await makeLayout();
    const registry = await startRegistry(layout);
    const { host } = registry;
    await registry.close();
    const store = await scratchStore();
    expect(await failureOf(store.pull(`${host}/team/app:v1`))).toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('nothing listens there'),
    });
    expect(await failureOf(store.pull('registry.invalid/x'))).toMatchObject({ code: 'unreachable' });
  });

  test('a cancelled pull ends at once and leaves nothing', async () => {
    const { layout, layer } = await makeLayout();
    const registry = await startRegistry(layout, {
      fault: (path) => (path.endsWith(layer) ? { kind: 'hang' } : undefined),
    });
    const store = await scratchStore();
    const abort = new AbortController();
    const pull = failureOf(store.pull(`${registry.host}/team/app:v1`, { signal: abort.signal }));
    await waitFor(() => registry.seen(layer).length > 0);
    abort.abort();
    expect(await pull).toMatchObject({ code: 'aborted' });
    await store.prune();
    expect(await store.list()).toEqual([]);
  });
});

describe('what the user is told', () => {
  const status = (code: number, headers = {}) =>
    ({ fault: () => ({ kind: 'status', status: code, headers }) }) satisfies Omit<
      TestRegistryOptions,
      'repositories'
    >;
  const auth = { kind: 'bearer', username: 'u', password: 'secret' } as const;

  // Always which image, which registry, why, and what to do.
  test.each([
    ['an unknown image', {}, 'team/none:v1', /has no such image.*Check the spelling/],
    ['no login', { auth }, 'team/app:v1', /without login.*private.*docker login.*--password-stdin/],
    ['a page for a login', status(403), 'team/app:v1', /without login.*docker login/],
    ['a limit', status(429, { 'retry-after': '7200' }), 'team/app:v1', /limit is reached.*7200 seconds/],
    ['a broken registry', status(500), 'team/app:v1', /status 500.*Try again/],
    ['a dead registry', undefined, 'team/app:v1', /nothing listens there.*tried 2 times.*image import/],
  ])('of %s', async (_, options, name, expected) => {
    const { layout } = await makeLayout();
    const registry = await startRegistry(layout, options);
    const { host } = registry;
    if (options === undefined) await registry.close();
    const store = await scratchStore({ retry: { tries: 2, baseMs: 10 } });
    const { message } = await failureOf(store.acquire(`${host}/${name}`, 'holder'));
    expect(message).toMatch(expected);
    expect(message.startsWith(`${host}/${name} cannot be pulled: the registry ${host} `)).toBe(true);
  });

  test('of a wrong password: the user, never the password', async () => {
    const { layout } = await makeLayout();
    const registry = await startRegistry(layout, { auth });
    const wrong = { username: 'me', password: 'hunter2' };
    const pull = (await scratchStore()).pull(`${registry.host}/team/app:v1`, { auth: wrong });
    const failure = await failureOf(pull);
    expect(failure.message).toMatch(/refuses it to the user "me".*incorrect username or password/);
    expect(`${failure.message} ${failure.stack}`).not.toMatch(/hunter2|aHVudGVyMg/);
  });
});

describe('bad content', () => {
  test('an unknown image, tag and registry path', async () => {
    const { layout } = await makeLayout();
    const registry = await startRegistry(layout);
    const store = await scratchStore();
    for (const name of ['team/app:none', 'team/none:v1']) {
      expect(await failureOf(store.pull(`${registry.host}/${name}`))).toMatchObject({ code: 'not-found' });
    }
  });

  test('a layer with other bytes', async () => {
    const { layout, layer } = await makeLayout();
    const bytes = await readFile(layout.blobPath(layer));
    bytes[1000]! ^= 1;
    await writeFile(layout.blobPath(layer), bytes);
    const registry = await startRegistry(layout);
    const store = await scratchStore();
    const failure = await failureOf(store.pull(`${registry.host}/team/app:v1`));
    expect(failure).toMatchObject({ code: 'digest-mismatch', message: expect.stringContaining(layer) });
    expect(await store.list()).toEqual([]);
  });

  test('a truncated layer', async () => {
    const { layout, layer } = await makeLayout();
    const bytes = await readFile(layout.blobPath(layer));
    await writeFile(layout.blobPath(layer), bytes.subarray(0, 1_000_000));
    const registry = await startRegistry(layout, { ignoresRange: true });
    const failure = await failureOf((await scratchStore()).pull(`${registry.host}/team/app:v1`));
    expect(failure.code).toBe('truncated');
  });

  test('a manifest that is not what its digest says', async () => {
    const { layout, digest } = await makeLayout();
    const registry = await startRegistry(layout, {
      fault: (path) =>
        path.includes('/manifests/') ? { kind: 'replace', content: Buffer.from('{}') } : undefined,
    });
    const failure = await failureOf((await scratchStore()).pull(`${registry.host}/team/app@${digest}`));
    expect(failure.code).toBe('digest-mismatch');
  });

  test('a manifest without end', async () => {
    const { layout } = await makeLayout();
    const registry = await startRegistry(layout, {
      fault: (path) =>
        path.includes('/manifests/') ? { kind: 'replace', content: Buffer.alloc(5000, ' ') } : undefined,
    });
    const store = await scratchStore({ limits: { maxManifestBytes: 4000 } });
    expect((await failureOf(store.pull(`${registry.host}/team/app:v1`))).code).toBe('too-large');
  });
});

const address = Object.values(networkInterfaces())
  .flat()
  .find((net) => net && net.family === 'IPv4' && !net.internal)?.address;
if (!address) console.warn('skipped: plain HTTP beyond loopback needs a network address');

test.skipIf(!address)('plain HTTP beyond loopback needs to be allowed', async () => {
  const { layout } = await makeLayout();
  const registry = await startRegistry(layout, { address: address! });
  const name = `${registry.host}/team/app:v1`;
  expect(await failureOf((await scratchStore()).pull(name))).toMatchObject({
    code: 'insecure-registry',
    message: expect.stringContaining(`sandlot up --restart --insecure-registry ${registry.host}`),
  });
  const allowed = await scratchStore({ insecureRegistries: [registry.host] });
  expect((await allowed.pull(name)).layers).toHaveLength(2);
});

test('two requests for one image are one pull and one build', async () => {
  const { layout, layer } = await makeLayout();
  const registry = await startRegistry(layout);
  const store = await scratchStore();
  const holds = await Promise.all(
    ['a', 'b', 'c', 'd'].map((holder) => store.acquire(`${registry.host}/team/app:v1`, holder)),
  );
  expect(new Set(holds.map(({ path }) => path)).size).toBe(1);
  expect(registry.seen('/manifests/')).toHaveLength(1);
  expect(registry.seen(layer)).toHaveLength(1);
  expect((await store.list())[0]!.holders).toBe(4);
});

test('when one of two callers gives up, the other still gets the image', async () => {
  const { layout, layer } = await makeLayout();
  const registry = await startRegistry(layout, {
    fault: (path, count) => (path.endsWith(layer) && count === 1 ? { kind: 'hang' } : undefined),
  });
  const store = await scratchStore({ retry: { tries: 3, baseMs: 10, silenceMs: 500 } });
  const name = `${registry.host}/team/app:v1`;
  const abort = new AbortController();
  const first = failureOf(store.acquire(name, 'a', { signal: abort.signal }));
  const second = store.acquire(name, 'b');
  await waitFor(() => registry.seen(layer).length > 0);
  abort.abort();
  expect(await first).toMatchObject({ code: 'aborted' });
  expect((await second).image.layers).toHaveLength(2);
  expect(await store.holders()).toEqual(['b']);
});

async function waitFor(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 500 && !condition(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
  expect(condition()).toBe(true);
}

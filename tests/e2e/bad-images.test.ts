/** Images that cannot be used, from a registry through the API: each fails with a reason that names it; and two that can. */
import { randomBytes } from 'node:crypto';
import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LayoutFixture } from '@sandlot/images/testing/layout-fixture';
import { buildTar } from '@sandlot/images/testing/tar-fixture';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RegistryProcess } from '../driver/registry-process.js';
import { staticProgram, tellingProgram } from '../driver/test-images.js';
import { TestServer } from '../driver/test-server.js';

let server: TestServer;
let registry: RegistryProcess;
let key: string;

beforeAll(async () => {
  server = await TestServer.start();
  registry = await RegistryProcess.start(server.namespace);
  key = (await server.json<{ api_key: string }>(['config'])).api_key;
});
afterAll(async () => {
  await registry?.close();
  await server?.close();
});

interface Context {
  status: string;
  errorType: string | null;
  errorMessage: string | null;
}

async function create(image: string): Promise<string> {
  const body = { name: 'x', docker_image: image, memory_gb: 0.5, disk_size_gb: 2 };
  const made = await server.ask<{ id: string; status: string }>('POST', '/sandbox?wait=60', key, body);
  expect(made.status).toBeLessThan(300);
  return made.body.id;
}

async function failureOf(image: string): Promise<Context> {
  const id = await create(image);
  const { body } = await server.ask<Context>('GET', `/sandbox/${id}/error-context`, key);
  await server.ask('DELETE', `/sandbox/${id}`, key);
  return body;
}

/** A layer that is large enough to be transferred in parts. */
const layer = () => buildTar([{ name: 'file', content: randomBytes(300_000) }]);

/** What is wrong with an image, and how it is made so; the layout has the image under the tag afterwards. */
const damages: [string, string, string, (layout: LayoutFixture, tag: string) => Promise<unknown>][] = [
  ['unknown-tag', 'IMAGE_PULL_FAILED', 'manifest unknown', async () => undefined],
  [
    'foreign-architecture',
    'IMAGE_INVALID',
    's390x',
    (layout, tag) =>
      layout.addImage({ tag, layers: [{ tar: layer() }], platform: { os: 'linux', architecture: 's390x' } }),
  ],
  [
    'altered-layer',
    'IMAGE_INVALID',
    'sha256:',
    async (layout, tag) => damage(layout, tag, (path) => writeFileSync(path, 'X', { flag: 'r+' })),
  ],
  [
    'cut-transfer',
    'IMAGE_PULL_FAILED',
    'sha256:',
    async (layout, tag) => damage(layout, tag, (path) => truncateSync(path, 100_000)),
  ],
  [
    'cut-archive',
    'IMAGE_PULL_FAILED',
    'ends in the middle',
    // Its digest is right: what is missing was never there.
    (layout, tag) => layout.addImage({ tag, layers: [{ tar: layer().subarray(0, 150_000) }] }),
  ],
  [
    'wrong-diff-id',
    'IMAGE_INVALID',
    'sha256:',
    (layout, tag) => layout.addImage({ tag, layers: [{ tar: layer(), diffId: `sha256:${'0'.repeat(64)}` }] }),
  ],
  [
    'unknown-compression',
    'IMAGE_INVALID',
    'lz4',
    // The beginning of an LZ4 frame.
    (layout, tag) =>
      layout.addImage({
        tag,
        layers: [{ tar: Buffer.concat([Buffer.from('04224d18', 'hex'), randomBytes(200_000)]) }],
      }),
  ],
];

/** Stores an image and then damages the file of its layer. */
async function damage(layout: LayoutFixture, tag: string, change: (path: string) => void): Promise<void> {
  const manifest = await layout.addImage({ tag, layers: [{ tar: layer() }] });
  const { layers } = JSON.parse(readFileSync(layout.blobPath(manifest.digest), 'utf8')) as {
    layers: { digest: string }[];
  };
  change(layout.blobPath(layers[0]?.digest as string));
}

describe('an image that cannot be used', () => {
  const unreachable = ['127.0.0.1:9/no/such:1', 'registry.invalid/no/such:1', '198.51.100.7:5000/no/such:1'];
  const failures = new Map<string, Context>();

  // All at once: a registry that does not answer is asked again, which takes seconds.
  beforeAll(async () => {
    for (const [tag, , , make] of damages) await make(registry.layout, tag);
    const images = [...damages.map(([tag]) => registry.reference(tag)), ...unreachable];
    await Promise.all(images.map(async (image) => failures.set(image, await failureOf(image))));
  });

  it.each(damages)('%s: ends as %s, says why, and is named', (tag, errorType, word) => {
    const image = registry.reference(tag);
    const context = failures.get(image);
    expect(context).toMatchObject({ status: 'ERROR', errorType });
    expect(context?.errorMessage).toContain(image);
    expect(context?.errorMessage).toContain(word);
  });

  it.each(unreachable)(
    '%s, of a registry that cannot be reached: ends as IMAGE_PULL_FAILED and is named',
    (image) => {
      const context = failures.get(image);
      expect(context).toMatchObject({ status: 'ERROR', errorType: 'IMAGE_PULL_FAILED' });
      expect(context?.errorMessage).toContain(image);
    },
  );

  it('is removed by a prune', async () => {
    await server.mustRun(['image', 'prune']);
    expect(await server.json<unknown[]>(['image', 'ls'])).toEqual([]);
  });
});

describe('an image of a hundred layers and without a shell', () => {
  it('runs; each layer has had its say; and a command for the shell says that there is none', async () => {
    const first = [{ name: 'tell', content: staticProgram(tellingProgram), mode: 0o755 }];
    const layers = [...Array(100).keys()].map((n) => ({
      tar: buildTar([
        ...(n === 0 ? first : [{ name: `kept/.wh.${n - 1}`, content: '' }]),
        { name: 'kept/', type: 'dir' as const, mode: 0o755 },
        { name: `kept/${n}`, content: `${n}` },
        { name: 'newest', content: `layer ${n}` },
      ]),
      compression: (['plain', 'gzip', 'zstd'] as const)[n % 3] as 'plain',
    }));
    await registry.layout.addImage({ tag: 'hundred', layers });
    const id = await create(registry.reference('hundred'));
    const told = await server.mustRun(['run', id, '--', '/tell']);
    expect(told).toContain('uid=0');
    await server.mustRun(['download', id, '/newest', join(server.folder, 'newest')]);
    expect(readFileSync(join(server.folder, 'newest'), 'utf8')).toBe('layer 99');
    await server.mustRun(['download', id, '/kept', join(server.folder, 'kept')]);
    expect(readFileSync(join(server.folder, 'kept/99'), 'utf8')).toBe('99');
    await expect(async () => readFileSync(join(server.folder, 'kept/98'))).rejects.toThrow(/ENOENT/);
    const shell = await server.run(['run', id, '--', '/bin/sh', '-c', 'true']);
    expect(shell).toMatchObject({ code: 127 });
    const { body } = await server.ask<Context>('GET', `/sandbox/${id}/error-context`, key);
    expect(body.errorMessage).toContain('The image has no shell');
    await server.mustRun(['rm', id]);
  });
});

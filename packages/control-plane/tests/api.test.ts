import { readdirSync, readFileSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { buildOpenApi, type ErrorBody, notYetRoutes, productVersion } from '@sandlot/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectFits, send, simple, World } from './world.js';

let world: World;
beforeAll(async () => {
  world = await new World({ trustedProxies: ['127.0.0.0/8'] }).open();
});
afterAll(() => world.close());

describe('errors', () => {
  it('carry a request id, the client’s own if it looks like one', async () => {
    const own = await world.call<ErrorBody>('GET', '/sandbox/nosuch', {
      headers: { 'x-request-id': 'my-1' },
    });
    expect(own.body.request_id).toBe('my-1');
    expect(own.headers['x-request-id']).toBe('my-1');
    const made = await world.call<ErrorBody>('GET', '/sandbox/nosuch', {
      headers: { 'x-request-id': 'a b' },
    });
    expect(made.body.request_id).toMatch(/^[0-9a-f]{16}$/);
  });

  it('have their id in the node’s log too: it goes along with every command', async () => {
    const headers = { 'x-request-id': 'my-2' };
    const sandbox = await world.create({ start_command: 'echo' }, { headers });
    await world.call('GET', `/sandbox/${sandbox.id}/logs`, { headers });
    await world.call('GET', '/images/local', { headers });
    await world.call('PUT', `/sandbox/${sandbox.id}/egress-policy`, { headers, body: { allowlist: [] } });
    await world.call('DELETE', `/sandbox/${sandbox.id}`, { headers });
    const path = `/v1/sandboxes/${sandbox.id}`;
    for (const call of [`PUT ${path}`, `GET ${path}/logs`, `PUT ${path}/egress-policy`, `DELETE ${path}`])
      expect([call, world.node.requestIds.get(call)]).toEqual([call, 'my-2']);
    expect(world.node.requestIds.get('GET /v1/images')).toBe('my-2');
  });

  it.each([
    ['bad JSON', 'POST', '/sandbox', { raw: Buffer.from('{"a":') }, 400, 'MALFORMED_BODY'],
    [
      'poisoned JSON',
      'POST',
      '/sandbox',
      { raw: Buffer.from('{"__proto__":{"a":1}}') },
      400,
      'MALFORMED_BODY',
    ],
    ['a list', 'POST', '/sandbox', { raw: Buffer.from('[]') }, 422, 'INVALID_REQUEST'],
    [
      'another type',
      'POST',
      '/sandbox',
      { raw: Buffer.from('a=1'), headers: { 'content-type': 'text/plain' } },
      415,
      'UNSUPPORTED_MEDIA_TYPE',
    ],
    ['too much', 'POST', '/users', { raw: Buffer.alloc(1024 * 1024 + 1, 32) }, 413, 'BODY_TOO_LARGE'],
    ['no such path', 'GET', '/environmentshub/x', {}, 404, 'NOT_FOUND'],
    ['no such method', 'PATCH', '/sandbox', {}, 405, 'METHOD_NOT_ALLOWED'],
  ])('%s', async (_name, method, path, options, status, code) => {
    const answer = await world.call<ErrorBody>(method, path, options);
    expect([answer.status, answer.body.code]).toEqual([status, code]);
    expect(answer.body.detail.length).toBeGreaterThan(10);
  });

  it('every route that is not built yet says so by name', async () => {
    for (const { method, path, feature } of notYetRoutes) {
      const { status, body } = await world.call<ErrorBody>(
        method,
        path.replaceAll(/\{\w+\}/g, 'x').replace('*', 'a/b/c'),
        {
          body: method === 'GET' ? undefined : {},
        },
      );
      expect([method, path, status]).toEqual([method, path, 501]);
      expect(body.detail).toContain(feature);
    }
    expect((await world.call('POST', '/sandbox/x/pause', { key: 'bad' })).status).toBe(401);
  });

  it('a body that never ends is not waited for by a stranger', async () => {
    const { hostname, port } = new URL(world.address);
    const socket = connect({ host: hostname, port: Number(port) });
    socket.write(
      'POST /api/v1/sandbox HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n',
    );
    const first = await new Promise<Buffer>((resolve) => socket.once('data', resolve));
    expect(String(first)).toContain('401');
    socket.destroy();
  });
});

describe('the public origin', () => {
  const urlOf = async (target: World, headers: Record<string, string>) => {
    const { id } = await target.create();
    const { body } = await target.call('POST', `/sandbox/${id}/auth`, { headers });
    return body['gateway_url'];
  };

  it('is the forwarded one of a trusted proxy, the last in a chain', async () => {
    const forwarded = { 'x-forwarded-host': 'evil.org, sandlot.example.org', 'x-forwarded-proto': 'https' };
    expect(await urlOf(world, forwarded)).toBe('https://sandlot.example.org/gw');
    expect(await urlOf(world, { 'x-forwarded-host': 'a b', host: 'here:1' })).toBe('http://here:1/gw');
  });

  it('is not what anybody else forwards', async () => {
    const other = await new World().open();
    try {
      expect(await urlOf(other, { 'x-forwarded-host': 'evil.org', host: 'good:7070' })).toBe(
        'http://good:7070/gw',
      );
      const { body } = await other.admin<{ gatewayAuth: { gateway_url: string } }>(
        'POST',
        '/sandbox?wait=5',
        simple,
      );
      expect(body.gatewayAuth.gateway_url).toBe(`${other.address}/gw`);
    } finally {
      await other.close();
    }
  });

  it('is the configured one before all', async () => {
    const other = await new World({ publicUrl: 'https://fixed.example.org/' }).open();
    try {
      expect(await urlOf(other, { host: 'x' })).toBe('https://fixed.example.org/gw');
    } finally {
      await other.close();
    }
  });
});

describe('images', () => {
  const reference = 'registry.example.org:5000/team/python:3.11-slim';
  it('are listed for Prime’s clients in their form', async () => {
    const { body } = await world.call('GET', '/images?offset=0&limit=50&ownerScope=platform');
    expectFits('listImages', body);
    expect(body).toMatchObject({
      totalCount: 1,
      data: [
        {
          artifactType: 'VM_SANDBOX',
          imageName: 'registry.example.org:5000/team/python',
          imageTag: '3.11-slim',
        },
      ],
    });
    expect((await world.call('GET', '/images?search=nosuch')).body['data']).toEqual([]);
  });

  it('can be inspected, whatever is in the name', async () => {
    expectFits('listLocalImages', (await world.call('GET', '/images/local')).body);
    const found = await world.call('GET', `/images/local/${encodeURIComponent(reference)}`);
    expectFits('inspectLocalImage', found.body);
    expect(found.body['reference']).toBe(reference);
    expect((await world.call('GET', '/images/local/nosuch')).status).toBe(404);
    expect((await world.call('DELETE', `/images/local/${encodeURIComponent(reference)}`)).status).toBe(409);
    expectFits('pruneLocalImages', (await world.call('POST', '/images/local:prune')).body);
  });

  it('are imported as a stream of any type and length', async () => {
    const raw = Buffer.alloc(20 * 1024 * 1024, 7);
    for (const type of ['application/x-tar', 'application/octet-stream', 'application/json']) {
      const { status, headers, body } = await world.call('POST', '/images/local:import?name=my%2Fimage:1', {
        raw,
        headers: { 'content-type': type },
      });
      expect(status).toBe(200);
      expect(headers['content-type']).toBe('application/x-ndjson');
      expect(body).toMatchObject({ done: { reference: 'my/image:1', contentBytes: raw.length } });
    }
    expect((await world.call('POST', '/images/local:import', { raw })).status).toBe(422);
  });

  it('are pulled with progress in lines', async () => {
    const { headers, body } = await world.call('POST', '/images/local:pull', { body: { reference: 'x' } });
    expect(headers['content-type']).toBe('application/x-ndjson');
    expect(body).toMatchObject({ error: { code: 'not-found' } });
  });

  it('are pulled with credentials, which are passed on and kept nowhere', async () => {
    const auth = { username: 'me', password: 'hunter2-hunter2' };
    await world.call('POST', '/images/local:pull', { body: { reference: 'x', auth } });
    expect(world.node.pulls.at(-1)).toEqual({ reference: 'x', auth });
    const wrong = await world.call('POST', '/images/local:pull', {
      body: { reference: 'x', auth: { password: auth.password } },
    });
    expect(wrong.status).toBe(422);
    expect(JSON.stringify(wrong.body)).not.toContain(auth.password);
    expect(world.logged.join('')).not.toContain(auth.password);
    for (const name of readdirSync(world.folder, { recursive: true, encoding: 'utf8' })) {
      const file = join(world.folder, name);
      if (statSync(file).isFile()) expect(readFileSync(file).includes(auth.password)).toBe(false);
    }
  });

  it('are not there while the node is not', async () => {
    await world.node.stop();
    const { status, body } = await world.call('GET', '/images/local');
    expect([status, body['code']]).toEqual([503, 'NODE_UNAVAILABLE']);
    await world.node.start();
    await world.inStep();
  });
});

describe('the server itself', () => {
  it('tells an admin what runs, and others what is theirs', async () => {
    const { body } = await world.call('GET', '/status');
    expectFits('getStatus', body);
    expect(body).toMatchObject({ version: productVersion, accelerator: 'fake', networkMode: 'none' });
    expect(body['processes']).toContainEqual(expect.objectContaining({ pid: process.pid }));
    const other = await world.call('GET', '/status', { key: await world.makeKey('looker') });
    expect(other.body).toMatchObject({
      processes: [],
      machines: [],
      dataFolder: null,
      counts: { running: 0 },
    });
  });

  it('is healthy, and measured', async () => {
    await world.create();
    expect((await send(`${world.address}/healthz`, 'GET', {})).body).toEqual({
      status: 'ok',
      version: productVersion,
    });
    const metrics = String((await send(`${world.address}/metrics`, 'GET', {})).body);
    expect(metrics).toMatch(/sandlot_sandboxes\{state="running"\} [1-9]/);
    expect(metrics).toMatch(/sandlot_sandboxes_created_total [1-9]/);
    expect(metrics).toContain('sandlot_api_request_seconds_count{operation="createSandbox",status="201"}');
    expect(metrics).toContain('sandlot_nodes_reachable 1');
  });

  it('serves its own description', async () => {
    const answer = await send(`${world.address}/api/v1/sandbox/openapi.json`, 'GET', {});
    expect(answer.body).toEqual(JSON.parse(JSON.stringify(buildOpenApi(productVersion))));
  });

  it('keeps keys, database and admin socket to its owner', () => {
    for (const file of ['admin.sock', 'keys/gateway.key', 'keys/secrets.key', 'data/control-plane.db'])
      expect([file, statSync(`${world.folder}/${file}`).mode & 0o077]).toEqual([file, 0]);
  });

  it('answers a get that waits as soon as it runs', async () => {
    world.node.autoRun = false;
    const { body } = await world.call('POST', '/sandbox?wait=0', { body: simple });
    const id = String(body['id']);
    await world.eventually(() => world.node.sandboxes.has(id));
    const waiting = world.call('GET', `/sandbox/${id}?wait=30`);
    setTimeout(() => world.node.run(id), 50);
    expect((await waiting).body['status']).toBe('RUNNING');
    world.node.autoRun = true;
  });

  it('takes leave politely: a waiting request is answered or cut within the grace', async () => {
    const other = await new World().open();
    other.node.autoRun = false;
    const waiting = other.call('POST', '/sandbox?wait=60', { body: simple }).catch((error: Error) => error);
    await other.eventually(() => other.node.sandboxes.size > 0);
    const begun = performance.now();
    await other.close();
    expect(performance.now() - begun).toBeLessThan(5_000);
    await waiting;
  });
});

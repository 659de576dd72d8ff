import type { Sandbox } from '@sandlot/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectField, expectFits, simple, World } from './world.js';

let world: World;
beforeAll(async () => {
  world = await new World().open();
});
afterAll(() => world.close());

describe('create', () => {
  it('answers a running sandbox with every field, defaults echoed', async () => {
    const sandbox = await world.create({
      environment_vars: { A: '1' },
      secrets: { S: 'hush' },
      labels: ['x'],
    });
    expect(sandbox).toMatchObject({
      name: 'test',
      dockerImage: 'python:3.11-slim',
      status: 'RUNNING',
      cpuCores: 1,
      memoryGB: 2,
      diskSizeGB: 10,
      timeoutMinutes: 60,
      idleTimeoutMinutes: null,
      environmentVars: { A: '1' },
      secrets: { S: '***' },
      labels: ['x'],
      vm: true,
      networkAccess: true,
      startCommand: null,
      effective: { vcpus: 1, memoryMiB: 2048, diskGiB: 10 },
    });
    expect(sandbox.id).toMatch(/^[a-z][a-z2-7]{19}$/);
    expect(sandbox.timings).toMatchObject({ image: 1, restore: 2, ready: 3 });
    expect(sandbox.timings['queue']).toBeGreaterThanOrEqual(0);
    expect(world.node.sandboxes.get(sandbox.id)?.spec).toMatchObject({
      secrets: { S: 'hush' },
      env: { A: '1' },
    });
  });

  it('without wait is held no longer than the node needs for its first word', async () => {
    const begun = performance.now();
    const { status, body } = await world.call<Sandbox>('POST', '/sandbox', { body: simple });
    expect(status).toBe(201);
    expect(body.status).toBe('RUNNING');
    expect(performance.now() - begun).toBeLessThan(400);
  });

  it('keeps what was asked for and books whole steps', async () => {
    const sandbox = await world.create({ cpu_cores: 0.5, memory_gb: 0.1, disk_size_gb: 0.5 });
    expect(sandbox).toMatchObject({ cpuCores: 0.5, memoryGB: 0.1, effective: { vcpus: 1, memoryMiB: 256 } });
    expect(world.node.sandboxes.get(sandbox.id)?.spec).toMatchObject({
      cpuLimit: 0.5,
      diskBytes: 1024 ** 3,
    });
  });

  it.each([
    [{ name: '' }, 'name'],
    [{ name: 'x'.repeat(101) }, 'name'],
    [{ docker_image: undefined }, 'docker_image'],
    [{ docker_image: 'two words' }, 'docker_image'],
    [{ docker_image: 'NOT/Valid' }, 'docker_image'],
    [{ docker_image: 'python@sha256:short' }, 'docker_image'],
    [{ cpu_cores: 0 }, 'cpu_cores'],
    [{ cpu_cores: 17 }, 'cpu_cores'],
    [{ cpu_cores: '1' }, 'cpu_cores'],
    [{ memory_gb: 0.05 }, 'memory_gb'],
    [{ memory_gb: 65 }, 'memory_gb'],
    [{ disk_size_gb: 1001 }, 'disk_size_gb'],
    [{ timeout_minutes: 0 }, 'timeout_minutes'],
    [{ timeout_minutes: 525_601 }, 'timeout_minutes'],
    [{ timeout_minutes: 10, idle_timeout_minutes: 11 }, 'idle_timeout_minutes'],
    [{ idle_timeout_minutes: 0 }, 'idle_timeout_minutes'],
    [{ gpu_count: 1 }, 'gpu_count'],
    [{ arch: 'arm64' }, 'arch'],
    [{ arch: 'mips' }, 'arch'],
    [{ start_command: { executable: 'a', extra: 1 } }, 'start_command'],
    [{ start_command: 'a\0b' }, 'start_command'],
    [{ start_command: 'a', entrypoint: true }, 'entrypoint'],
    [{ environment_vars: { 'A=B': 'x' } }, 'environment_vars.A=B'],
    [{ secrets: { A: 'x\0' } }, 'secrets.A'],
    [{ network_allowlist: ['https://example.org'] }, 'network_allowlist.0'],
    [{ network_allowlist: [], network_denylist: [] }, 'network_allowlist'],
    [{ network_allowlist: ['a.org', '169.254.169.254'] }, 'network_allowlist.1'],
    [{ network_denylist: ['a.org:443'] }, 'network_denylist.0'],
    [{ network_allowlist: Array.from({ length: 257 }, (_, at) => `h${at}.org`) }, 'network_allowlist'],
    [{ network_denylist: ['10.0.0.0/33'] }, 'network_denylist.0'],
    [{ labels: ['', 'x'] }, 'labels.0'],
  ])('refuses %j, naming %s', async (change, param) => {
    expectField(await world.call('POST', '/sandbox', { body: { ...simple, ...change } }), param);
  });

  it('names every wrong field at once', async () => {
    const { body } = await world.call('POST', '/sandbox', {
      body: { name: '', docker_image: 'x', cpu_cores: 99 },
    });
    expect((body['errors'] as { param: string }[]).map((issue) => issue.param).sort()).toEqual([
      'cpu_cores',
      'name',
    ]);
  });

  it.each([-1, -7, 43_200])('takes a timeout of %d', async (timeout) => {
    const sandbox = await world.create({ timeout_minutes: timeout });
    expect(sandbox.timeoutMinutes).toBe(timeout);
    const { deadlineUnixMs } = world.node.sandboxes.get(sandbox.id)?.spec ?? {};
    if (timeout < 0) expect(deadlineUnixMs).toBeUndefined();
    else expect(deadlineUnixMs).toBeGreaterThan(Date.now() + (timeout - 1) * 60_000);
  });

  it.each([
    [{ volumes: [{ name: 'v' }] }, 'volumes'],
    [{ registry_credentials_id: 'r' }, 'registry credentials'],
  ])('says that %j is not built yet', async (change, feature) => {
    const { status, body } = await world.call('POST', '/sandbox', { body: { ...simple, ...change } });
    expect(status).toBe(501);
    expect(body['detail']).toContain(feature);
  });

  it('takes null for absent, and ignores what it does not know', async () => {
    const sandbox = await world.create({
      start_command: null,
      team_id: null,
      guaranteed: false,
      gpu_count: 0,
      no_such: 1,
    });
    expect(sandbox.teamId).toBeNull();
  });

  it.each([
    ['a string runs by a shell', 'echo hi', { argv: ['/bin/sh', '-c', 'echo hi'] }],
    ['an object is the argv', { executable: 'a', args: ['b', 'c'] }, { argv: ['a', 'b', 'c'] }],
    ['an object needs no arguments', { executable: 'a' }, { argv: ['a'] }],
  ])('start command: %s', async (_name, command, expected) => {
    const sandbox = await world.create({ start_command: command });
    expect(world.node.sandboxes.get(sandbox.id)?.spec.startCommand).toEqual(expected);
  });

  it('starts the entrypoint only when asked', async () => {
    const plain = await world.create();
    const withInit = await world.create({ init: true });
    expect(withInit.init).toBe(true);
    expect(world.node.sandboxes.get(withInit.id)?.spec.init).toBe(true);
    const entry = await world.create({ entrypoint: true });
    expect(entry.init).toBe(false);
    expect(world.node.sandboxes.get(entry.id)?.spec.init).toBeUndefined();
    expect(world.node.sandboxes.get(plain.id)?.spec.startCommand).toBeUndefined();
    expect(world.node.sandboxes.get(entry.id)?.spec.startCommand).toEqual({ entrypoint: true });
  });

  it.each([
    ['prime-sandboxes/0.2.36 python/3.11', 'tail -f /dev/null'],
    ['prime-sandboxes/0.2.39 python/3.11', { executable: '/bin/sh', args: ['-c', 'tail -f /dev/null'] }],
    ['prime-sandboxes/0.5.1 python/3.11', { executable: '/bin/sh', args: ['-c', 'tail -f /dev/null'] }],
    ['curl/8', { executable: '/bin/sh', args: ['-c', 'tail -f /dev/null'] }],
  ])('shows a start command to %s in a form that it reads', async (agent, expected) => {
    const { id } = await world.create({ start_command: 'tail -f /dev/null' });
    const { body } = await world.call<Sandbox>('GET', `/sandbox/${id}`, { headers: { 'user-agent': agent } });
    expect(body.startCommand).toEqual(expected);
  });

  it('answers gatewayAuth, with is_vm false exactly for vm:false', async () => {
    for (const vm of [undefined, true, false]) {
      const sandbox = await world.create({ vm });
      expect(sandbox.gatewayAuth).toMatchObject({
        gateway_url: `${world.address}/gw`,
        user_ns: sandbox.userId,
        job_id: sandbox.id,
        is_vm: vm !== false,
      });
      expect(sandbox.vm).toBe(vm !== false);
      const auth = await world.call('POST', `/sandbox/${sandbox.id}/auth`);
      expectFits('authorizeSandbox', auth.body);
      const claims = JSON.parse(
        Buffer.from(String(auth.body['token']).split('.')[1] ?? '', 'base64url').toString(),
      );
      expect(claims).toMatchObject({ sub: sandbox.id, gen: 1 });
    }
  });

  it('says which build an image waits for, and how that ended', async () => {
    world.node.autoRun = false;
    const created = world.call<Sandbox>('POST', '/sandbox', { body: simple });
    await world.eventually(() =>
      [...world.node.sandboxes.values()].some(({ report }) => report.state === 'pending'),
    );
    const id =
      [...world.node.sandboxes.values()].find(({ report }) => report.state === 'pending')?.spec.sandboxId ??
      '';
    world.node.change(id, { imageBuildId: 'build-1' });
    const { body } = await created;
    expect(body).toMatchObject({ id, status: 'PENDING', pendingImageBuildId: 'build-1', stage: 'image' });
    const batch = await world.call('POST', '/sandbox/status:batchGet', { body: { sandbox_ids: [id] } });
    expect(batch.body['statuses']).toMatchObject([{ status: 'PENDING', pending_image_build_id: 'build-1' }]);
    const build = await world.call('GET', '/images/build/build-1');
    expectFits('getImageBuild', build.body);
    expect(build.body).toMatchObject({ status: 'BUILDING', imageName: 'python', imageTag: '3.11-slim' });
    world.node.run(id);
    await world.eventually(async () => (await world.get(id)).pendingImageBuildId === null);
    expect((await world.call('GET', '/images/build/build-1')).body['status']).toBe('COMPLETED');
    expect((await world.call('GET', '/images/build/no-such')).status).toBe(404);
    world.node.autoRun = true;
  });
});

describe('idempotency', () => {
  it('makes one sandbox of a hundred creates at once', async () => {
    const body = { ...simple, idempotency_key: 'race' };
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => world.call<Sandbox>('POST', '/sandbox', { body })),
    );
    expect(answers.map((answer) => answer.status)).toEqual(answers.map(() => 201));
    expect(new Set(answers.map((answer) => answer.body.id)).size).toBe(1);
  });

  it('does not mind the order of fields, but another body', async () => {
    const first = await world.create({ labels: ['a'], idempotency_key: 'k' });
    const { body } = await world.call<Sandbox>('POST', '/sandbox', {
      body: { idempotency_key: 'k', labels: ['a'], docker_image: simple.docker_image, name: simple.name },
    });
    expect(body.id).toBe(first.id);
    const other = await world.call('POST', '/sandbox', {
      body: { ...simple, labels: ['b'], idempotency_key: 'k' },
    });
    expect(other.status).toBe(409);
    expect(other.body['code']).toBe('IDEMPOTENCY_MISMATCH');
  });

  it('is each user’s own', async () => {
    const key = await world.makeKey('idem');
    const mine = await world.create({ idempotency_key: 'same' });
    const theirs = await world.create({ idempotency_key: 'same' }, { key });
    expect(theirs.id).not.toBe(mine.id);
  });
});

import type { Sandbox, SandboxList } from '@sandlot/protocol';
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
      diskBytes: 512 * 1024 * 1024,
    });
  });

  it.each([
    [{ name: '' }, 'name'],
    [{ name: 'x'.repeat(101) }, 'name'],
    [{ docker_image: undefined }, 'docker_image'],
    [{ docker_image: 'two words' }, 'docker_image'],
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
    [{ checkpoint_id: 'c' }, 'checkpoints'],
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
    const entry = await world.create({ entrypoint: true });
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

describe('delete', () => {
  it('answers an object; the sandbox is TERMINATED; a second one is 404', async () => {
    const { id } = await world.create();
    const first = await world.call('DELETE', `/sandbox/${id}`, {
      headers: { 'content-type': 'application/json' },
    });
    expect(first.status).toBe(200);
    expectFits('deleteSandbox', first.body);
    expect(await world.get(id)).toMatchObject({
      status: 'TERMINATED',
      terminationReason: 'DELETED',
      errorType: null,
    });
    expect((await world.call('DELETE', `/sandbox/${id}`)).status).toBe(404);
    expect((await world.call('GET', `/sandbox/${id}/error-context`)).body).toEqual({
      status: 'TERMINATED',
      errorType: null,
      errorMessage: null,
    });
    await world.eventually(() => world.node.acknowledged.includes(id) && !world.node.sandboxes.has(id));
  });

  it('wins over a start that is on its way to the node', async () => {
    let open: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      open = resolve;
    });
    world.node.gate = async (kind) => (kind === 'start' ? held : undefined);
    const { body } = await world.call<Sandbox>('POST', '/sandbox?wait=0', { body: simple });
    const deleted = world.call('DELETE', `/sandbox/${body.id}`);
    await world.eventually(async () => (await world.get(body.id)).status === 'TERMINATED');
    open();
    expect((await deleted).status).toBe(200);
    await world.eventually(() => !world.node.sandboxes.has(body.id));
    expect((await world.get(body.id)).status).toBe('TERMINATED');
    world.node.gate = async () => undefined;
  });

  it('wins over reports of a running start', async () => {
    world.node.autoRun = false;
    const { body } = await world.call<Sandbox>('POST', '/sandbox?wait=0', { body: simple });
    await world.eventually(() => world.node.sandboxes.has(body.id));
    world.node.gate = async (kind, id) => {
      if (kind === 'remove') world.node.run(id);
    };
    expect((await world.call('DELETE', `/sandbox/${body.id}`)).status).toBe(200);
    expect((await world.get(body.id)).status).toBe('TERMINATED');
    world.node.gate = async () => undefined;
    world.node.autoRun = true;
  });

  it('at once from many sides is one success', async () => {
    const { id } = await world.create();
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => world.call('DELETE', `/sandbox/${id}`)),
    );
    expect(answers.filter((answer) => answer.status === 200)).toHaveLength(1);
    expect(answers.filter((answer) => answer.status === 404)).toHaveLength(19);
  });

  it('of one that ended by itself is a success once, and its end stays true', async () => {
    const { id } = await world.create();
    world.node.change(id, {
      state: 'stopped',
      reason: 'TIMEOUT',
      endedAtUnixMs: Date.now(),
      message: 'over',
    });
    await world.eventually(async () => (await world.get(id)).status === 'TIMEOUT');
    expect((await world.call('DELETE', `/sandbox/${id}`)).status).toBe(200);
    expect((await world.call('DELETE', `/sandbox/${id}`)).status).toBe(404);
    expect(await world.get(id)).toMatchObject({
      status: 'TIMEOUT',
      errorType: 'TIMEOUT',
      errorMessage: 'over',
    });
  });
});

describe('bulk delete', () => {
  it('deletes by ids, and says which it did not find', async () => {
    const one = await world.create();
    const two = await world.create();
    const { status, body } = await world.call('DELETE', '/sandbox', {
      body: { sandbox_ids: [one.id, two.id, 'nosuch'], all_users: false },
    });
    expect(status).toBe(200);
    expectFits('bulkDeleteSandboxes', body);
    expect(body['succeeded']).toEqual([one.id, two.id]);
    expect(body['failed']).toMatchObject([{ sandbox_id: 'nosuch' }]);
    expect((await world.get(one.id)).status).toBe('TERMINATED');
  });

  it('deletes what has all of the labels, live ones only', async () => {
    const both = await world.create({ labels: ['red', 'blue'] });
    const red = await world.create({ labels: ['red'] });
    const { body } = await world.call('DELETE', '/sandbox', { body: { labels: ['red', 'blue'] } });
    expect(body['succeeded']).toEqual([both.id]);
    expect((await world.get(red.id)).status).toBe('RUNNING');
    expect(
      (await world.call('DELETE', '/sandbox', { body: { labels: ['red', 'blue'] } })).body['succeeded'],
    ).toEqual([]);
  });

  it('takes 500 ids', async () => {
    const ids = Array.from({ length: 500 }, (_, index) => `none${index}`);
    const { body } = await world.call('DELETE', '/sandbox', { body: { sandbox_ids: ids } });
    expect(body['failed']).toHaveLength(500);
    expectField(
      await world.call('DELETE', '/sandbox', { body: { sandbox_ids: [...ids, 'more'] } }),
      'sandbox_ids',
    );
  });
});

describe('list', () => {
  it('knows every filter', async () => {
    const label = 'filters';
    const alive = await world.create({ labels: [label, 'two'] });
    const gone = await world.create({ labels: [label] });
    await world.call('DELETE', `/sandbox/${gone.id}`);
    const list = async (query: string) => {
      const { status, body } = await world.call<SandboxList>('GET', `/sandbox?${query}`);
      expect(status).toBe(200);
      expectFits('listSandboxes', body);
      return body.sandboxes.map((sandbox) => sandbox.id);
    };
    expect(await list(`labels=${label}`)).toEqual([gone.id, alive.id]);
    expect(await list(`labels=${label}&labels=two`)).toEqual([alive.id]);
    expect(await list(`labels=${label}&is_active=true`)).toEqual([alive.id]);
    expect(await list(`labels=${label}&is_active=false`)).toEqual([gone.id, alive.id]);
    expect(await list(`labels=${label}&status=TERMINATED&is_active=false`)).toEqual([gone.id]);
    expect(await list(`labels=${label}&id_prefix=${alive.id.slice(0, 6)}`)).toEqual([alive.id]);
    expect(await list(`labels=${label}&user_id=${alive.userId}`)).toHaveLength(2);
    expect(await list(`labels=${label}&user_id=nobody`)).toEqual([]);
    expectField(await world.call('GET', '/sandbox?status=BROKEN'), 'status');
    expectField(await world.call('GET', '/sandbox?per_page=1001'), 'per_page');
    expectField(await world.call('GET', '/sandbox?page=0'), 'page');
    expectField(await world.call('GET', '/sandbox?page=x'), 'page');
  });

  it('shows each sandbox once while others come and go between the pages', async () => {
    const labels = ['pages'];
    const all: string[] = [];
    for (let count = 0; count < 12; count++) all.unshift((await world.create({ labels })).id);
    const seen: string[] = [];
    let hasNext = true;
    for (let page = 1; hasNext; page++) {
      const query = `labels=pages&is_active=true&per_page=3&page=${page}`;
      const { body } = await world.call<SandboxList>('GET', `/sandbox?${query}`);
      expect(body).toMatchObject({ total: 12, page, per_page: 3, perPage: 3 });
      seen.push(...body.sandboxes.map((sandbox) => sandbox.id));
      hasNext = body.has_next;
      expect(body.hasNext).toBe(hasNext);
      if (page <= 3) {
        await world.create({ labels });
        await world.call('DELETE', `/sandbox/${seen[page - 1]}`);
      }
    }
    expect(seen).toEqual(all);
    const { body } = await world.call<SandboxList>(
      'GET',
      '/sandbox?labels=pages&is_active=true&page=1&per_page=50',
    );
    expect(body.total).toBe(12);
  });

  it('answers an empty page beyond the end', async () => {
    const { body } = await world.call<SandboxList>('GET', '/sandbox?labels=none-such&page=4');
    expect(body).toMatchObject({ sandboxes: [], total: 0, has_next: false });
  });
});

describe('batches', () => {
  it('answers the status of every id, in one list or the other', async () => {
    const { id } = await world.create();
    const { body } = await world.call('POST', '/sandbox/status:batchGet', {
      body: { sandbox_ids: [id, 'nosuch'] },
    });
    expectFits('batchGetStatus', body);
    expect(body['statuses']).toMatchObject([{ sandbox_id: id, status: 'RUNNING', error_type: null }]);
    expect(body['errors']).toMatchObject([{ sandbox_id: 'nosuch', code: 'NOT_FOUND' }]);
    const many = Array.from({ length: 101 }, (_, index) => `s${index}`);
    expectField(
      await world.call('POST', '/sandbox/status:batchGet', { body: { sandbox_ids: many } }),
      'sandbox_ids',
    );
    expectField(
      await world.call('POST', '/sandbox/status:batchGet', { body: { sandbox_ids: [] } }),
      'sandbox_ids',
    );
    expectField(
      await world.call('POST', '/sandbox/status:batchGet', { body: { sandbox_ids: ['a', 'a'] } }),
      'sandbox_ids',
    );
  });

  it('tells finished jobs from running ones, by their exit files', async () => {
    const { id } = await world.create();
    const gone = await world.create();
    await world.call('DELETE', `/sandbox/${gone.id}`);
    world.node.files.set(`${id}:/tmp/job_aaaa0001.exit`, '5\n');
    world.node.files.set(`${id}:/tmp/job_aaaa0002.exit`, '');
    world.node.files.set(`${id}:/tmp/job_aaaa0004.exit`, 'what');
    const jobs = [
      { sandbox_id: id, job_id: 'aaaa0001' },
      { sandbox_id: id, job_id: 'aaaa0002' },
      { sandbox_id: id, job_id: 'aaaa0003' },
      { sandbox_id: id, job_id: 'aaaa0004' },
      { sandbox_id: gone.id, job_id: 'aaaa0001' },
      { sandbox_id: 'nosuch', job_id: 'aaaa0001' },
    ];
    const { body } = await world.call('POST', '/sandbox/background-jobs/status:batchGet', { body: { jobs } });
    expectFits('batchGetJobs', body);
    expect(body['statuses']).toEqual([
      { sandbox_id: id, job_id: 'aaaa0001', completed: true, exit_code: 5 },
      { sandbox_id: id, job_id: 'aaaa0002', completed: false },
      { sandbox_id: id, job_id: 'aaaa0003', completed: false },
    ]);
    expect((body['errors'] as { code: string }[]).map((error) => error.code)).toEqual([
      'RUNTIME_ERROR',
      'NOT_RUNNING',
      'NOT_FOUND',
    ]);
    const evil = { jobs: [{ sandbox_id: id, job_id: '../../etc/passwd' }] };
    expectField(
      await world.call('POST', '/sandbox/background-jobs/status:batchGet', { body: evil }),
      'jobs.0.job_id',
    );
  });
});

describe('ends', () => {
  it.each([
    ['OOM_KILLED', 'failed', 'ERROR', 'OOM_KILLED'],
    ['IMAGE_PULL_FAILED', 'failed', 'ERROR', 'IMAGE_PULL_FAILED'],
    ['MACHINE_ENDED', 'failed', 'ERROR', 'MACHINE_ENDED'],
    ['TIMEOUT', 'stopped', 'TIMEOUT', 'TIMEOUT'],
    ['IDLE_TIMEOUT', 'stopped', 'TIMEOUT', 'TIMEOUT'],
    ['GUEST_SHUTDOWN', 'stopped', 'TERMINATED', null],
  ] as const)('%s is told as %s, %s', async (reason, state, status, errorType) => {
    const { id } = await world.create({ start_command: 'x' });
    expect((await world.call('GET', `/sandbox/${id}/logs`)).body).toEqual({ logs: `log of ${id}` });
    world.node.change(id, { state, reason, message: 'because', exitCode: 3, logTail: 'last words' });
    await world.eventually(async () => (await world.get(id)).status === status);
    const sandbox = await world.get(id);
    expectFits('getSandbox', sandbox);
    expect(sandbox).toMatchObject({ terminationReason: reason, errorType, exitCode: 3 });
    expect(sandbox.terminatedAt).not.toBeNull();
    const context = await world.call('GET', `/sandbox/${id}/error-context`);
    expectFits('getErrorContext', context.body);
    expect(context.body).toEqual({ status, errorType, errorMessage: errorType === null ? null : 'because' });
    expect((await world.call('GET', `/sandbox/${id}/logs`)).body).toEqual({ logs: 'last words' });
    await world.eventually(() => world.node.acknowledged.includes(id));
  });

  it('logs are empty without a start command', async () => {
    const { id } = await world.create();
    expect((await world.call('GET', `/sandbox/${id}/logs`)).body).toEqual({ logs: '' });
  });
});

describe('egress policy', () => {
  it('is generation 0 and applied at create, in canonical form', async () => {
    const { id, networkAllowlist } = await world.create({
      network_allowlist: ['PyPI.org', '1.2.3.4', '*.Example.ORG:443'],
    });
    expect(networkAllowlist).toEqual(['pypi.org', '1.2.3.4/32', '*.example.org:443']);
    const { body } = await world.call('GET', `/sandbox/${id}/egress-policy`);
    expectFits('getEgressPolicy', body);
    expect(body).toMatchObject({ generation: 0, applied_generation: 0, applied: true });
    expect(world.node.sandboxes.get(id)?.spec.egress).toMatchObject({ generation: 0, denylist: null });
  });

  it('network_access false denies all', async () => {
    const sandbox = await world.create({ network_access: false });
    expect(sandbox).toMatchObject({ networkAccess: false, networkAllowlist: [], networkDenylist: null });
  });

  it('rises with every PUT and is applied once the node says so', async () => {
    const { id } = await world.create();
    let open: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      open = resolve;
    });
    world.node.gate = async (kind) => (kind === 'egress' ? held : undefined);
    const put = world.call('PUT', `/sandbox/${id}/egress-policy`, {
      body: { allowlist: [], denylist: null },
    });
    await world.eventually(async () => {
      const { body } = await world.call('GET', `/sandbox/${id}/egress-policy`);
      return body['generation'] === 1 && body['applied'] === false && body['applied_generation'] === 0;
    });
    open();
    expect((await put).body).toMatchObject({
      policy: { allowlist: [], denylist: null },
      generation: 1,
      applied: true,
    });
    const all = await world.call('PUT', `/sandbox/${id}/egress-policy`, {
      body: { allowlist: null, denylist: [] },
    });
    expect(all.body).toMatchObject({
      policy: { allowlist: null, denylist: [] },
      generation: 2,
      applied: true,
    });
    world.node.gate = async () => undefined;
  });

  it('refuses bad entries, and changes of what has ended', async () => {
    const { id } = await world.create();
    const put = (body: unknown) => world.call('PUT', `/sandbox/${id}/egress-policy`, { body });
    expectField(await put({ allowlist: ['a b'], denylist: null }), 'allowlist.0');
    expectField(await put({ allowlist: ['a.org'], denylist: ['b.org'] }), 'allowlist');
    await world.call('DELETE', `/sandbox/${id}`);
    expect((await put({ allowlist: [], denylist: null })).status).toBe(409);
  });
});

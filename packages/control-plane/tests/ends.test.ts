import type { Sandbox } from '@sandlot/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectField, expectFits, simple, World } from './world.js';

let world: World;
beforeAll(async () => {
  world = await new World().open();
});
afterAll(() => world.close());

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

it('a running sandbox that is weaker than asked for says so in its error context, without an error', async () => {
  const { id } = await world.create();
  const context = () => world.call('GET', `/sandbox/${id}/error-context`);
  expect((await context()).body).toEqual({ status: 'RUNNING', errorType: null, errorMessage: null });
  const warning = 'The image has no shell.';
  world.node.change(id, { warnings: [warning] });
  await world.eventually(async () => (await world.get(id)).warnings.length > 0);
  expect((await context()).body).toEqual({ status: 'RUNNING', errorType: null, errorMessage: warning });
});

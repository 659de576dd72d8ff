/** Views as programs ask for them, and what an agent gets. */
import { afterEach, expect, it } from 'vitest';
import { AgentSandbox, NotBuiltError, PermissionError, Sandlot, ValidationError } from '../src/index.js';
import { event } from './command-service.js';
import { ExecServer } from './exec-server.js';
import { type SeenRequest, TestServer } from './test-server.js';

const closing: { close(): unknown }[] = [];
afterEach(async () => {
  for (const one of closing.splice(0).reverse()) await one.close();
});

async function clientOf(answer: (request: SeenRequest) => { status?: number; json?: unknown }) {
  const server = await TestServer.open(answer);
  const client = new Sandlot({ url: server.url, apiKey: 'k', maxRetries: 0 });
  closing.push(server, client);
  return { server, client };
}

async function execServer(refuse?: () => number | undefined) {
  const server = await ExecServer.open({
    async *start() {
      yield event.start();
      yield event.stdout('out');
      yield event.end();
    },
    ...(refuse ? { refuse } : {}),
  });
  closing.push(server);
  return server;
}

it('a create says its view as the API has it, and nothing where there is none', async () => {
  const { server, client } = await clientOf(() => ({ json: { id: 'sb1' } }));
  const view = { hide: ['/srv'], readonly: ['/etc'], privateTmp: true, network: 'none' } as const;
  await client.sandboxes.create({ image: 'x', view });
  await client.sandboxes.create({ image: 'x' });
  const [first, second] = server.seen.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
  expect(first?.['view']).toEqual({
    hide: ['/srv'],
    readonly: ['/etc'],
    private_tmp: true,
    network: 'none',
  });
  expect(second).not.toHaveProperty('view');
});

it('a command says its view, or outside of any, or nothing', async () => {
  const server = await execServer();
  await server.sandbox.run(['x'], { view: { strength: 'mask', hide: ['/a'], readonly: ['/b'] } });
  await server.sandbox.run(['x'], { view: { privateTmp: true, network: 'none' } });
  await server.sandbox.run(['x'], { view: { strength: 'none' } });
  await server.sandbox.run(['x']);
  const [first, second, third, fourth] = server.commands.starts.map((request) => request.view);
  expect(first).toMatchObject({ strength: 'mask', hide: ['/a'], readonly: ['/b'] });
  expect(first?.privateTmp).toBeUndefined();
  expect(second).toMatchObject({ hide: [], privateTmp: true, network: 'none' });
  expect(second?.strength).toBeUndefined();
  expect(third).toMatchObject({ strength: 'none', hide: [] });
  expect(fourth).toBeUndefined();
});

it('gives an agent a token of its own, which runs commands without a key', async () => {
  const server = await execServer();
  const { client, server: api } = await clientOf(() => ({
    json: {
      token: 'agents',
      gateway_url: `${server.url}/gw/`,
      user_ns: 'u',
      job_id: 'sb1',
      expires_at: new Date(Date.now() + 60_000).toISOString(),
      in_view: true,
    },
  }));
  const access = await client.sandboxes.handle('sb1').agentAccess();
  expect(api.seen[0]).toMatchObject({ method: 'POST', path: '/api/v1/sandbox/sb1/auth' });
  expect(JSON.parse(api.seen[0]?.body ?? '')).toEqual({ in_view: true });
  expect(access).toMatchObject({ sandboxId: 'sb1', url: `${server.url}/gw/u/sb1`, token: 'agents' });
  // It goes to the agent as text.
  const agent = new AgentSandbox(JSON.parse(JSON.stringify(access)));
  closing.push(agent);
  expect((await agent.run(['cat', '/x'], { cwd: '/', user: 'root' })).stdout).toBe('out');
  expect(server.commands.starts[0]?.view).toBeUndefined();
  expect([server.auths, api.seen.length]).toEqual([0, 1]);
});

it('an agent hears what it may not do, and does not ask for another token', async () => {
  let status = 403;
  const server = await execServer(() => status);
  const access = { sandboxId: 'sb1', url: `${server.url}/gw/u/sb1`, token: 't', expiresAt: '2100-01-01' };
  const agent = new AgentSandbox(access);
  closing.push(agent);
  await expect(agent.run(['x'])).rejects.toBeInstanceOf(PermissionError);
  status = 401;
  await expect(agent.run(['x'])).rejects.toMatchObject({ name: 'AuthenticationError' });
  expect(server.auths).toBe(0);
});

it('does not pass an owner’s token on as an agent’s, and says why there is none', async () => {
  const { client } = await clientOf(({ path }) =>
    path.includes('old')
      ? { json: { token: 'all', gateway_url: 'x', user_ns: 'u', job_id: 'j', expires_at: '2100-01-01' } }
      : { status: 422, json: { detail: 'no default view', errors: [{ param: 'in_view', details: 'x' }] } },
  );
  await expect(client.sandboxes.handle('old').agentAccess()).rejects.toBeInstanceOf(NotBuiltError);
  await expect(client.sandboxes.handle('plain').agentAccess()).rejects.toBeInstanceOf(ValidationError);
});

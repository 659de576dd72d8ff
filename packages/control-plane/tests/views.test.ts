/** The default view of a sandbox in the records and on its way to the node; tokens for agents. */
import type { GatewayAuth, GatewayTokenClaims, Sandbox } from '@sandlot/protocol';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { expectField, simple, World } from './world.js';

let world: World;
beforeAll(async () => {
  world = await new World().open();
});
afterAll(() => world.close());

const specOf = (id: string) => world.node.sandboxes.get(id)?.spec;
const claimsOf = ({ token }: GatewayAuth) =>
  JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as GatewayTokenClaims;

it('is kept as asked for, told with the sandbox, and sent to the node in the guest’s form', async () => {
  const view = { hide: ['/srv/shop'], readonly: ['/etc'], private_tmp: true };
  const { id, view: answered } = await world.create({ view });
  expect(answered).toEqual(view);
  expect((await world.call<Sandbox>('GET', `/sandbox/${id}`)).body.view).toEqual(view);
  expect(specOf(id)?.view).toEqual({
    strength: 'sealed',
    hide: ['/srv/shop'],
    readonly: ['/etc'],
    privateTmp: true,
  });
});

it.each([undefined, null, { strength: 'none' }])('a view of %j is none', async (view) => {
  const sandbox = await world.create({ view });
  expect(sandbox.view).toBeNull();
  expect(specOf(sandbox.id)).toBeDefined();
  expect(specOf(sandbox.id)).not.toHaveProperty('view');
});

it.each([
  [{ hide: ['srv'] }, 'view.hide.0'],
  [{ hidden: ['/srv'] }, 'view.hidden'],
  [{ strength: 'weak' }, 'view.strength'],
  [{ strength: 'none', hide: ['/srv'] }, 'view'],
  [{ network: 'machine' }, 'view.network'],
  ['/srv', 'view'],
])('refuses %j, naming %s', async (view, param) => {
  expectField(await world.call('POST', '/sandbox', { body: { ...simple, view } }), param);
});

it('the same idempotency key with another view is another body', async () => {
  const ask = (view: unknown) =>
    world.call('POST', '/sandbox', { body: { ...simple, view, idempotency_key: 'views-1' } });
  expect((await ask({ hide: ['/srv'] })).status).toBe(201);
  expect((await ask({ hide: ['/srv'] })).status).toBe(201);
  expect((await ask({ hide: ['/opt'] })).status).toBe(409);
});

it('gives a token for an agent, and says that it is one', async () => {
  const { id } = await world.create({ view: { hide: ['/srv'] } });
  const auth = await world.call<GatewayAuth>('POST', `/sandbox/${id}/auth`, { body: { in_view: true } });
  expect(auth.status).toBe(200);
  expect(auth.body.in_view).toBe(true);
  expect(claimsOf(auth.body)).toMatchObject({ sub: id, view: true });
});

it.each([undefined, {}, { in_view: false }, { in_view: null }, { other: 1 }])(
  'with the body %j it is the owner’s, as Prime’s clients ask for it',
  async (body) => {
    const { id } = await world.create({ view: { hide: ['/srv'] } });
    const auth = await world.call<GatewayAuth>('POST', `/sandbox/${id}/auth`, { body });
    expect(auth.status).toBe(200);
    expect(auth.body).not.toHaveProperty('in_view');
    expect(claimsOf(auth.body)).not.toHaveProperty('view');
  },
);

it('refuses a token for a view that there is not, or a wish that is none', async () => {
  const { id } = await world.create({});
  const ask = (body: unknown) => world.call('POST', `/sandbox/${id}/auth`, { body });
  expectField(await ask({ in_view: true }), 'in_view');
  expectField(await ask({ in_view: 'yes' }), 'in_view');
});

it('a view that cannot be made ends the create, and the reason is told', async () => {
  world.node.autoRun = false;
  try {
    const { body } = await world.call<Sandbox>('POST', '/sandbox', {
      body: { ...simple, view: { hide: ['/nowhere'] } },
    });
    const message = 'The default view of the sandbox cannot be made: /nowhere does not exist.';
    world.node.change(body.id, { state: 'failed', reason: 'VIEW_INVALID', message });
    const { body: ended } = await world.call<Sandbox>('GET', `/sandbox/${body.id}?wait=5`);
    expect(ended).toMatchObject({ status: 'ERROR', errorType: 'VIEW_INVALID', errorMessage: message });
  } finally {
    world.node.autoRun = true;
  }
});

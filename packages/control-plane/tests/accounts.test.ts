import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Sandbox, SandboxList } from '@sandlot/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectField, expectFits, simple, World } from './world.js';

let world: World;
beforeAll(async () => {
  world = await new World().open();
});
afterAll(() => world.close());

describe('keys', () => {
  it.each([
    ['no header', null, {}],
    ['an unknown key', 'sl_unknown', {}],
    ['another scheme', null, { authorization: 'Basic abc' }],
    ['an empty key', null, { authorization: 'Bearer ' }],
  ])('%s is 401', async (_name, key, headers) => {
    const { status, body } = await world.call('GET', '/sandbox', { key, headers });
    expect(status).toBe(401);
    expect(body['code']).toBe('UNAUTHENTICATED');
  });

  it('are shown once, stored as a hash only, listed by prefix, and worthless once revoked', async () => {
    const { status, body } = await world.call('POST', '/keys', { body: { name: 'laptop' } });
    expect(status).toBe(201);
    expectFits('createKey', body);
    const key = String(body['key']);
    expect((await world.call('GET', '/sandbox', { key })).status).toBe(200);
    const list = await world.call('GET', '/keys?user=admin');
    expectFits('listKeys', list.body);
    expect(JSON.stringify(list.body)).not.toContain(key);
    expect(list.body['data']).toContainEqual(
      expect.objectContaining({ id: body['id'], prefix: key.slice(0, 8) }),
    );
    expect(readDatabase(world)).not.toContain(key);
    expect((await world.call('DELETE', `/keys/${body['id']}`)).status).toBe(200);
    expect((await world.call('GET', '/sandbox', { key })).status).toBe(401);
    expect((await world.call('DELETE', `/keys/${body['id']}`)).status).toBe(404);
  });

  it('can be made by the admin socket when all are lost', async () => {
    const { status, body } = await world.admin('POST', '/keys', { user: 'admin' });
    expect(status).toBe(201);
    expect((await world.call('GET', '/user/whoami', { key: String(body['key']) })).status).toBe(200);
  });
});

describe('users and teams', () => {
  it('whoami tells who a key belongs to', async () => {
    const { body } = await world.call('GET', '/user/whoami?teamId=x');
    expectFits('whoAmI', body);
    expect(body['data']).toMatchObject({ name: 'admin', isAdmin: true });
  });

  it('the first start makes admin with a personal team, as every user has one', async () => {
    const { body } = await world.call('GET', '/user/teams?offset=0&limit=100');
    expectFits('listMyTeams', body);
    expect(body['data']).toMatchObject([{ name: 'personal-admin', role: 'admin' }]);
    const key = await world.makeKey('solo');
    const theirs = await world.call('GET', '/user/teams', { key });
    expect(theirs.body['data']).toMatchObject([{ name: 'personal-solo', role: 'admin' }]);
    const added = await world.call('PUT', '/teams/personal-solo/members/admin', { body: {} });
    expect(added.status).toBe(409);
  });

  it('names are taken once, and have a form', async () => {
    expect((await world.call('POST', '/users', { body: { name: 'solo' } })).status).toBe(409);
    expectField(await world.call('POST', '/users', { body: { name: 'a b' } }), 'name');
    expect((await world.call('POST', '/keys', { body: { user: 'nobody' } })).status).toBe(404);
    expect((await world.call('GET', '/users')).body['total_count']).toBeGreaterThanOrEqual(2);
  });

  it.each([
    ['POST', '/users', { name: 'x' }],
    ['GET', '/users', undefined],
    ['POST', '/teams', { name: 'x' }],
    ['PUT', '/teams/personal-admin/members/plain', {}],
    ['POST', '/keys', { user: 'admin' }],
    ['GET', '/keys', undefined],
    ['POST', '/images/local:prune', undefined],
    ['DELETE', '/images/local/x', undefined],
  ])('%s %s needs an admin', async (method, path, body) => {
    plain ??= await world.makeKey('plain');
    const answer = await world.call(method, path, { key: plain, body });
    expect(answer.status).toBe(403);
  });
});
let plain: string | undefined;

describe('isolation', () => {
  it('a personal sandbox is its owner’s alone; an admin sees it', async () => {
    const ann = await world.makeKey('ann');
    const bob = await world.makeKey('bob');
    const { id } = await world.create({ labels: ['ann'] }, { key: ann });
    for (const [method, path] of routesOf(id)) {
      const { status, body } = await world.call(method, path, {
        key: bob,
        body: method === 'PUT' ? { allowlist: [] } : undefined,
      });
      expect([path, status, body['code']]).toEqual([path, 404, 'SANDBOX_NOT_FOUND']);
    }
    const batch = await world.call('POST', '/sandbox/status:batchGet', {
      key: bob,
      body: { sandbox_ids: [id] },
    });
    expect(batch.body['errors']).toMatchObject([{ code: 'NOT_FOUND' }]);
    const jobs = { jobs: [{ sandbox_id: id, job_id: 'a' }] };
    const jobBatch = await world.call('POST', '/sandbox/background-jobs/status:batchGet', {
      key: bob,
      body: jobs,
    });
    expect(jobBatch.body['errors']).toMatchObject([{ code: 'NOT_FOUND' }]);
    const byId = await world.call('DELETE', '/sandbox', { key: bob, body: { sandbox_ids: [id] } });
    expect(byId.body).toMatchObject({ succeeded: [], failed: [{ sandbox_id: id }] });
    const byLabel = await world.call('DELETE', '/sandbox', { key: bob, body: { labels: ['ann'] } });
    expect(byLabel.body['succeeded']).toEqual([]);
    expect(await idsSeen(bob)).not.toContain(id);
    expect(await idsSeen(ann)).toContain(id);
    expect(await idsSeen(world.key)).toContain(id);
    expect((await world.call('GET', `/sandbox/${id}`)).status).toBe(200);
  });

  it('a team’s sandboxes are its members’', async () => {
    const team = await world.call('POST', '/teams', { body: { name: 'lab' } });
    expectFits('createTeam', team.body);
    const teamId = String(team.body['teamId']);
    // Prime's command line takes no other form for `config set-team-id`.
    expect(teamId).toMatch(/^c[a-z0-9]{24}$/);
    const [cat, dan, eve] = [
      await world.makeKey('cat'),
      await world.makeKey('dan'),
      await world.makeKey('eve'),
    ];
    for (const user of ['cat', 'dan'])
      expectFits('setTeamMember', (await world.call('PUT', `/teams/lab/members/${user}`, { body: {} })).body);
    const { id, userId } = await world.create({ team_id: teamId, labels: ['lab'] }, { key: cat });
    expect((await world.call('GET', `/sandbox/${id}`, { key: dan })).status).toBe(200);
    expect((await world.call('GET', `/sandbox/${id}`, { key: eve })).status).toBe(404);
    expect(await idsSeen(dan, `team_id=${teamId}`)).toEqual([id]);
    expect((await world.call('GET', `/sandbox?team_id=${teamId}`, { key: eve })).status).toBe(404);
    const outsider = await world.call('POST', '/sandbox', { key: eve, body: { ...simple, team_id: teamId } });
    expect(outsider.status).toBe(404);
    // By name as well; an admin, who may use every team, cannot use one that is not there.
    expect(await idsSeen(dan, 'team_id=lab')).toEqual([id]);
    const named = await world.create({ team_id: 'lab' }, { key: dan });
    expect(named.teamId).toBe(teamId);
    await world.call('DELETE', `/sandbox/${named.id}`, { key: dan });
    const body = { ...simple, team_id: 'nosuch' };
    expect((await world.call('POST', '/sandbox', { body })).status).toBe(404);
    expect((await world.call('GET', '/sandbox?team_id=nosuch')).status).toBe(404);
    expect((await world.call('DELETE', '/sandbox', { body: { team_id: 'nosuch' } })).status).toBe(404);
    const members = await world.call('GET', `/teams/${teamId}/members`, { key: dan });
    expectFits('listTeamMembers', members.body);
    expect((await world.call('GET', `/teams/${teamId}/members`, { key: eve })).status).toBe(404);
    // A label of somebody else's in the team is not mine to sweep, unless I manage it.
    const sweep = (body: object) =>
      world.call('DELETE', '/sandbox', { key: dan, body: { labels: ['lab'], team_id: teamId, ...body } });
    expect((await sweep({})).body['succeeded']).toEqual([]);
    expect((await sweep({ all_users: true })).status).toBe(403);
    expect((await sweep({ user_id: userId })).status).toBe(403);
    await world.call('PUT', '/teams/lab/members/dan', { body: { role: 'admin' } });
    expect((await sweep({ all_users: true })).body['succeeded']).toEqual([id]);
    await world.call('DELETE', '/teams/lab/members/dan');
    expect((await world.call('GET', `/sandbox/${id}`, { key: dan })).status).toBe(404);
  });

  it('delete of all means the caller’s own', async () => {
    const fay = await world.makeKey('fay');
    const theirs = await world.create({}, { key: fay });
    const mine = await world.create();
    const { body } = await world.call('DELETE', '/sandbox', { body: { all_users: false } });
    expect(body['succeeded']).toContain(mine.id);
    expect((await world.get(theirs.id)).status).toBe('RUNNING');
    const forbidden = await world.call('DELETE', '/sandbox', { key: fay, body: { all_users: true } });
    expect(forbidden.status).toBe(403);
    const all = await world.call('DELETE', '/sandbox', { body: { all_users: true } });
    expect(all.body['succeeded']).toContain(theirs.id);
  });
});

it('secrets are not in the database in clear, and gone once the sandbox has ended', async () => {
  const { id } = await world.create({ secrets: { TOKEN: 'very-secret-value' } });
  expect(readDatabase(world)).not.toContain('very-secret-value');
  expect(JSON.stringify((await world.call<Sandbox>('GET', `/sandbox/${id}`)).body)).not.toContain(
    'very-secret-value',
  );
});

function routesOf(id: string): [string, string][] {
  return [
    ['GET', `/sandbox/${id}`],
    ['GET', `/sandbox/${id}/logs`],
    ['GET', `/sandbox/${id}/error-context`],
    ['POST', `/sandbox/${id}/auth`],
    ['GET', `/sandbox/${id}/egress-policy`],
    ['PUT', `/sandbox/${id}/egress-policy`],
    ['DELETE', `/sandbox/${id}`],
  ];
}

async function idsSeen(key: string, query = ''): Promise<string[]> {
  const { body } = await world.call<SandboxList>('GET', `/sandbox?${query}`, { key });
  return body.sandboxes.map((sandbox) => sandbox.id);
}

function readDatabase({ folder }: World): string {
  return readdirSync(join(folder, 'data'))
    .map((name) => readFileSync(join(folder, 'data', name), 'latin1'))
    .join('');
}

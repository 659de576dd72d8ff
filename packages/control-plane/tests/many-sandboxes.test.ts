import type { SandboxList } from '@sandlot/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectField, expectFits, World } from './world.js';

let world: World;
beforeAll(async () => {
  world = await new World().open();
});
afterAll(() => world.close());

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

/** Views through the gateway, with real machines: the default one, others, none, and what an agent's token reaches. */
import type { AgentSandbox } from '@sandlot/sdk';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

const outside = { view: { strength: 'none' } } as const;
const secret = 'the owner knows';
const startCommand = {
  argv: ['/bin/sh', '-c', `mkdir -p /srv/shop; echo "${secret}" > /srv/shop/orders; exec sleep 100000`],
};

/** A view that is made and a command in it, on an emulated machine of a busy host, many times over. */
const patienceMs = 400_000;

let node: TestNode;
let sandbox: TestSandbox;
let agent: AgentSandbox;

beforeAll(async () => {
  node = await TestNode.start();
  sandbox = await node.create({ startCommand, view: { strength: 'sealed', hide: ['/srv'] } });
  agent = sandbox.openAsAgent();
  // The start command acts outside of the view.
  await sandbox.until('the shop has its orders', async () =>
    (await sandbox.sh('cat /srv/shop/orders', outside)).stdout.includes(secret),
  );
}, 500_000);
afterAll(async () => {
  agent?.close();
  await node?.close();
}, 300_000);

/** An exec by the gateway's REST route. */
async function rest(token: string, body: Record<string, unknown>) {
  const answer = await fetch(`${sandbox.agentAccess.url}/exec`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  return { status: answer.status, body: (await answer.json()) as { stdout: string; detail?: string } };
}

it(
  'hides from commands that say nothing, on both ways, and from no other',
  async () => {
    const look = 'ls -A /srv; cat /srv/shop/orders';
    expect((await sandbox.sh(look)).stdout).toBe('');
    expect((await sandbox.sh(look, outside)).stdout).toBe(`shop\n${secret}\n`);
    expect((await sandbox.sh(look, { view: { hide: ['/opt'] } })).stdout).toBe(`shop\n${secret}\n`);
    expect((await sandbox.sh(look, { view: { strength: 'mask', hide: ['/srv'] } })).stdout).toBe('');
    const owner = node.bridge.token(sandbox.id, sandbox.generation);
    expect((await rest(owner, { command: look })).body.stdout).toBe('');
    expect((await rest(owner, { command: look, view: { strength: 'none' } })).body.stdout).toContain(secret);
    // Files are the owner's: outside.
    expect((await sandbox.files.readFile('/srv/shop/orders')).content).toBe(`${secret}\n`);
  },
  patienceMs,
);

it(
  'a command in a view works on the same machine: its files, its processes, its exit code',
  async () => {
    await sandbox.out('echo made inside > /root/made; chmod 600 /root/made');
    expect(await sandbox.out('cat /root/made; stat -c %u:%a /root/made', outside)).toBe('made inside\n0:600');
    const failed = await sandbox.sh('echo out; echo err >&2; exit 7');
    expect(failed).toMatchObject({ stdout: 'out\n', stderr: 'err\n', exitCode: 7 });
    const readonly = { view: { readonly: ['/etc'], privateTmp: true } };
    const tried = await sandbox.sh('touch /etc/x; touch /tmp/private && ls /tmp', readonly);
    expect(tried.stderr).toContain('Read-only file system');
    expect(tried.stdout).toBe('private\n');
    expect(await sandbox.out('ls -A /tmp | grep -c private || true', outside)).toBe('0');
  },
  patienceMs,
);

it(
  'a view whose path is not there fails the command, or the create, and names the path',
  async () => {
    const failed = await sandbox.sh('echo never', { view: { hide: ['/nowhere'] } });
    expect(failed).toMatchObject({ exitCode: 126, stdout: '' });
    expect(failed.stderr).toContain('/nowhere');
    const refused = await node.request({ view: { strength: 'sealed', hide: ['/srv', '/no/such/path'] } });
    const report = await refused.untilState('running', 'failed', 'stopped');
    expect(report).toMatchObject({ state: 'failed', reason: 'VIEW_INVALID' });
    expect(report.message).toContain('/no/such/path');
    await refused.delete();
  },
  patienceMs,
);

it(
  'an agent’s token runs commands in the view, as root, and is refused the rest',
  async () => {
    expect((await agent.run(['id', '-u'], { user: 'root' })).stdout).toBe('0\n');
    const look = await agent.run(['sh', '-c', 'cat /srv/shop/orders; cat /proc/1/root/srv/shop/orders']);
    expect(look.stdout).toBe('');
    const { token, url } = sandbox.agentAccess;
    expect(await rest(token, { command: 'cat /srv/shop/orders' })).toMatchObject({
      status: 200,
      body: { stdout: '' },
    });
    expect((await rest(token, { command: 'x', view: { strength: 'none' } })).status).toBe(403);
    for (const route of ['download', 'read-file', 'stat', 'tar']) {
      const answer = await fetch(`${url}/${route}?path=/srv/shop/orders`, {
        headers: { authorization: `Bearer ${token}` },
      });
      expect(answer.status, route).toBe(403);
    }
  },
  patienceMs,
);

it(
  'after the node agent was killed, views hold, and an agent reaches its own sessions and no others',
  async () => {
    const cat = ['cat'];
    const mine = await agent.exec(cat, { session: 'of-the-agent', stdin: true });
    const owners = await sandbox.exec(cat, { session: 'outside', stdin: true, ...outside });
    const other = { view: { strength: 'mask', hide: ['/opt'] } } as const;
    const elsewhere = await sandbox.exec(cat, { session: 'elsewhere', stdin: true, ...other });
    await node.killAgent();
    await node.startAgent();
    await sandbox.untilState('running');
    expect((await sandbox.sh('ls -A /srv')).stdout).toBe('');
    for (const session of ['outside', 'elsewhere', 'start-command'])
      await expect(agent.attach(session), session).rejects.toMatchObject({ name: 'NotFoundError' });
    for (const session of ['outside', 'elsewhere'])
      await expect(agent.run(cat, { session }), session).rejects.toMatchObject({ name: 'PermissionError' });
    const again = await agent.attach('of-the-agent');
    await again.write('still here\n');
    await again.closeStdin();
    let text = '';
    for await (const chunk of again.stdout) text += new TextDecoder().decode(chunk);
    expect(text).toBe('still here\n');
    expect((await again.wait()).exitCode).toBe(0);
    mine.close();
    for (const process of [owners, elsewhere]) {
      await process.signal('SIGKILL');
      expect((await process.wait()).signal).toBe('SIGKILL');
    }
  },
  patienceMs,
);

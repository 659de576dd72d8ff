/**
 * The command line of Prime, two generations of it, as a user types it: set the URL and a key, then every
 * command of `prime sandbox`, with its tables, its JSON and its exit codes.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { pythonArchive } from '../driver/checkout.js';
import { OutsideWorld, outside } from '../driver/outside-world.js';
import { TestServer } from '../driver/test-server.js';
import { FeatureTests } from './feature-results.js';
import { declareNotYet } from './prime-cli-not-yet.js';
import { ClientShell } from './published-program.js';
import { venv } from './venv.js';

const image = 'python:3.11-slim';
const small = ['--cpu-cores', '1', '--memory-gb', '0.5', '--disk-size-gb', '2'];
const testMs = 400_000;

let server: TestServer;
let world: OutsideWorld;

/** What `prime sandbox get -o json` shows. */
interface Details {
  id: string;
  status: string;
  [field: string]: unknown;
}

beforeAll(async () => {
  server = await TestServer.start({
    kvm: 'never',
    prepare: async (namespace) => {
      world = await OutsideWorld.open(namespace);
    },
  });
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 300_000 });
}, 600_000);
afterAll(async () => {
  // First: its uplink would be found in the server's namespace.
  world?.close();
  await server?.close();
}, 300_000);

describe.each([
  { version: '0.6.26', packages: ['prime==0.6.26', 'prime-sandboxes==0.2.39'] },
  { version: '0.18.0', packages: ['prime==0.18.0'] },
])('prime $version', ({ version, packages }) => {
  const client = `prime ${version}`;
  const tests = new FeatureTests(`prime-${version}`);
  const newest = version === '0.18.0';
  const user = `user-${version.replaceAll('.', '-')}`;
  const lab = `lab-${version}`;
  let team: string;
  let shell: ClientShell;
  let key: string;
  let id: string;
  /** Made with `vm: false`; the older generation only. */
  let container: string;

  /** `prime …` with nothing in its environment: the address and the key are those of `prime config`. */
  const settings = { PRIME_API_KEY: undefined, PRIME_API_BASE_URL: undefined };
  const call = (args: string[], env: Record<string, string | undefined> = {}, stdin = '') =>
    shell.run('prime', args, { env: { ...settings, ...env }, stdin });
  const prime = (...args: string[]) => shell.mustRun('prime', args, { env: settings });
  const json = async <T>(...args: string[]) => JSON.parse(await prime(...args, '-o', 'json')) as T;
  const works = (feature: string, body: () => Promise<void>) => tests.works(client, feature, body, testMs);
  const listed = async (...args: string[]) =>
    (await json<{ sandboxes: Details[] }>('sandbox', 'list', ...args)).sandboxes.map((one) => one.id);

  /** Creates one and waits until it runs, as a user does: by asking. */
  async function create(...args: string[]): Promise<string> {
    const told = await prime('sandbox', 'create', image, ...small, '-y', ...args);
    const made = /Successfully created sandbox (\S+)/.exec(told)?.[1];
    if (!made) throw new Error(`no id in: ${told}`);
    await until(made, 'RUNNING');
    return made;
  }
  async function until(sandbox: string, status: string): Promise<void> {
    const end = Date.now() + 180_000;
    for (;;) {
      const details = await json<Details>('sandbox', 'get', sandbox);
      if (details.status === status) return;
      if (Date.now() > end || ['ERROR', 'TERMINATED', 'TIMEOUT'].includes(details.status))
        throw new Error(`${sandbox} is ${details.status}, not ${status}:\n${server.logs()}`);
      await pause(500);
    }
  }

  beforeAll(async () => {
    const bin = await venv(`prime-${version}`, packages);
    await server.mustRun(['user', 'create', user]);
    // A team of its own: its members see its ended sandboxes too.
    await server.mustRun(['team', 'create', lab]);
    await server.mustRun(['team', 'add', lab, user]);
    const teams = await server.json<{ name: string; teamId: string }[]>(['team', 'ls']);
    team = teams.find(({ name }) => name === lab)?.teamId ?? '';
    key = (await server.json<{ key: string }>(['key', 'create', '--user', user])).key;
    shell = new ClientShell(server, bin, key, `home-${version}`);
  }, 1_200_000);

  works('config: address, key, contexts', async () => {
    expect(await prime('config', 'set-base-url', server.url)).toContain(server.url);
    expect(await prime('config', 'set-api-key', key)).toContain('configured successfully');
    const view = await prime('config', 'view');
    expect(view).toContain(server.url);
    expect(view).toContain(key.slice(0, 6));
    expect(view).not.toContain(key);
    await prime('config', 'save', 'here');
    await prime('config', 'set-base-url', 'http://127.0.0.1:9');
    expect((await call(['whoami'])).code).toBe(1);
    await prime('config', 'use', 'here');
    expect(await prime('config', 'envs')).toContain('here');
    expect(await prime('whoami')).toContain(user);
    expect(await prime('config', 'view')).toContain(server.url);
  });

  works('whoami', async () => {
    const account = await prime('whoami');
    for (const text of ['Personal', user, 'sandboxes', '✓']) expect(account).toContain(text);
    // The same by the two variables alone.
    expect(await shell.mustRun('prime', ['whoami'])).toContain(user);
    const wrong = await call(['whoami'], { PRIME_API_KEY: 'sl_wrong' });
    expect(wrong.code).toBe(1);
    expect(wrong.stdout).toMatch(/unauthorized|API key/i);
  });

  works('teams list, teams members', async () => {
    expect(await prime('teams', 'list')).toContain(lab);
    const { teams } = await json<{ teams: { teamId: string; role: string }[] }>('teams', 'list');
    expect(teams).toContainEqual(expect.objectContaining({ teamId: team, role: 'member' }));
    expect(await prime('teams', 'members', '--team-id', team)).toContain(user);
    const { members } = await json<{ members: { userName: string }[] }>(
      'teams',
      'members',
      '--team-id',
      team,
    );
    expect(members.map(({ userName }) => userName)).toContain(user);
  });

  works('sandbox create with every option', async () => {
    const told = await prime(
      ...['sandbox', 'create', image, ...small, '-y', '--name', 'story', '--region', 'here'],
      ...['--timeout-minutes', '30', '--idle-timeout-minutes', '20', '--network-allow', outside.name],
      ...[
        '--env',
        'A=one',
        '--env',
        'B=two=2',
        '--secret',
        'S=hidden',
        '--label',
        'story',
        '--label',
        version,
      ],
      ...['--', 'sh', '-c', 'echo from the start; sleep 100000'],
    );
    expect(told).not.toContain('hidden');
    id = /Successfully created sandbox (\S+)/.exec(told)?.[1] ?? '';
    expect(id).toMatch(/^[a-z0-9]+$/);
    await until(id, 'RUNNING');
  });

  works('sandbox get', async () => {
    const table = await prime('sandbox', 'get', id);
    for (const text of [id, 'story', image, 'RUNNING', outside.name, 'VM']) expect(table).toContain(text);
    expect(table).not.toContain('hidden');
    const details = await json<Details>('sandbox', 'get', id);
    expect(details).toMatchObject({
      ...{ id, name: 'story', docker_image: image, status: 'RUNNING', cpu_cores: 1, memory_gb: 0.5 },
      ...{ disk_size_gb: 2, gpu_count: 0, timeout_minutes: 30, idle_timeout_minutes: 20, region: 'here' },
      ...{ network_allowlist: [outside.name], labels: ['story', version] },
      start_command: { executable: 'sh', args: ['-c', 'echo from the start; sleep 100000'] },
    });
    const missing = await call(['sandbox', 'get', 'nosuchsandbox']);
    expect(missing.code).toBe(1);
    expect(missing.stdout).toContain('404');
  });

  works('sandbox run: streams, options, exit code', async () => {
    const script = 'echo "$A $B $S $MINE $PWD"; echo oops >&2; exit 7';
    const told = await call([
      'sandbox',
      'run',
      id,
      '-e',
      'MINE=mine',
      '-w',
      '/tmp',
      '--',
      'sh',
      '-c',
      script,
    ]);
    expect(told.code).toBe(7);
    expect(told.stdout).toContain('one two=2 hidden mine /tmp');
    expect(told.stdout).toContain('oops');
    expect(await prime('sandbox', 'run', id, 'echo "in one word"')).toContain('stdout:\nin one word');
    expect((await call(['sandbox', 'run', id, '--', 'nosuchprogram'])).code).toBe(127);
    expect((await call(['sandbox', 'run', id, '--', 'sh', '-c', 'kill -9 $$'])).code).toBe(137);
    const late = await call(['sandbox', 'run', id, '--timeout', '3', '--', 'sleep', '60']);
    expect(late.code).toBe(1);
    expect(late.stdout).toContain('Command Timeout');
    if (newest)
      expect(await prime('sandbox', 'run', id, '-u', 'nobody', '--', 'id', '-un')).toContain('nobody');
    expect((await call(['sandbox', 'run', 'nosuchsandbox', '--', 'true'])).code).toBe(1);
  });

  works('sandbox logs', async () => {
    expect(await prime('sandbox', 'logs', id)).toContain('from the start');
    expect((await call(['sandbox', 'logs', 'nosuchsandbox'])).code).toBe(1);
  });

  works('sandbox upload and download', async () => {
    const local = join(shell.home, 'sent.bin');
    const back = join(shell.home, 'folder/back.bin');
    writeFileSync(local, randomBytes(300_000));
    expect(await prime('sandbox', 'upload', id, local, '/tmp/new/folder/')).toContain(
      '/tmp/new/folder/sent.bin',
    );
    expect(await prime('sandbox', 'download', id, '/tmp/new/folder/sent.bin', back)).toContain('300,000');
    expect(readFileSync(back)).toEqual(readFileSync(local));
    const missing = await call(['sandbox', 'download', id, '/no/such/file', join(shell.home, 'none')]);
    expect(missing.code).toBe(1);
    expect(missing.stdout).toMatch(/not found|404|no such/i);
  });

  works('sandbox network: show, --allow, --deny, in force', async () => {
    const network = (...args: string[]) =>
      newest && args.length === 0
        ? prime('sandbox', 'network', 'egress', id)
        : prime('sandbox', 'network', id, ...args);
    /** What the machine fetches from the one place that is out there. */
    const fetched = async (host: string) =>
      (
        await call([
          ...['sandbox', 'run', id, '--', 'python3', '-c'],
          `import urllib.request; print(urllib.request.urlopen("http://${host}", timeout=8).read().decode())`,
        ])
      ).stdout.includes('outside sees');
    expect(await network()).toContain(`Access limited to: ${outside.name}`);
    expect(await fetched(outside.name)).toBe(true);
    expect(await network('--deny', '*')).toContain('Internet access: blocked');
    expect(await fetched(outside.name)).toBe(false);
    expect(await network('--allow', '*')).toContain('Internet access: unrestricted');
    expect(await fetched(outside.address)).toBe(true);
    expect(await network('--deny', `${outside.address},*.example.org`)).toContain('Blocked:');
    expect(await fetched(outside.address)).toBe(false);
    expect(await network('--allow', '198.51.100.0/24')).toContain('198.51.100.0/24');
    expect(await fetched(outside.address)).toBe(true);
    const both = await call(['sandbox', 'network', id, '--allow', 'a.test', '--deny', 'b.test']);
    expect(both.code).toBe(1);
    const wrong = await call(['sandbox', 'network', id, '--allow', 'http://a.test/path']);
    expect(wrong.code).toBe(1);
  });

  works('sandbox reset-cache', async () => {
    const cache = join(shell.home, '.prime/sandbox_auth_cache.json');
    expect(readFileSync(cache, 'utf8')).toContain(id);
    expect(await prime('sandbox', 'reset-cache', '-y')).toContain('cleared');
    expect(await prime('sandbox', 'run', id, '--', 'echo', 'again')).toContain('again');
  });

  works('sandbox list: --all, --status, --label, pages', async () => {
    const other = await create('--label', 'story', '--name', 'other');
    const table = await prime('sandbox', 'list');
    for (const text of ['Total: 2', id, 'story', image, 'RUNNING', 'left']) expect(table).toContain(text);
    expect(await listed()).toEqual([id, other]);
    expect(await listed('--label', 'story', '--label', version)).toEqual([id]);
    expect(await listed('--label', 'no such')).toEqual([]);
    expect(await listed('-n', '1', '-p', '2')).toEqual([id]);
    await prime('sandbox', 'delete', other, '-y');
    expect(await listed()).toEqual([id]);
    expect(await listed('--all')).toEqual([id, other]);
    expect(await listed('--status', 'TERMINATED')).toEqual([other]);
    expect(await listed('--status', 'RUNNING')).toEqual([id]);
    expect(await prime('sandbox', 'list', '--status', 'TERMINATED')).toContain('TERMINATED');
    expect((await call(['sandbox', 'list', '--status', 'NOSUCH'])).code).toBe(1);
  });

  works('a team’s sandboxes', async () => {
    await prime('config', 'set-team-id', team);
    expect(await prime('config', 'view')).toContain(team);
    expect(await listed()).toEqual([]);
    const shared = await create('--name', 'shared');
    expect(await listed()).toEqual([shared]);
    expect(await json<Details>('sandbox', 'get', shared)).toMatchObject({ team_id: team });
    expect(await prime('sandbox', 'delete', '--all', '-y')).toContain(shared);
    await prime('config', 'remove-team-id');
    expect(await listed()).toEqual([id]);
  });

  if (!newest) {
    works('sandbox create --container', async () => {
      container = await create('--container');
      expect(await prime('sandbox', 'get', container)).toContain('Container');
      const told = await call([
        'sandbox',
        'run',
        container,
        '-u',
        'nobody',
        '--',
        'sh',
        '-c',
        'id -un; exit 3',
      ]);
      expect(told.code).toBe(3);
      expect(told.stdout).toContain('nobody');
    });
  }

  if (newest) {
    /** A checkpoint that was made by `checkpoint create`. */
    let point: { id: string; state: string; sandbox_id: string };
    const checkpoints = async (...args: string[]) =>
      (await json<{ checkpoints: (typeof point)[] }>('sandbox', 'checkpoint', 'list', id, ...args))
        .checkpoints;
    const made = (told: string) => {
      const found = /sandbox (\S+)\n/.exec(told)?.[1];
      if (!found) throw new Error(`no id in: ${told}`);
      return found;
    };

    works('sandbox checkpoint create', async () => {
      await prime('sandbox', 'run', id, '--', 'sh', '-c', 'echo saved > /root/s');
      point = await json('sandbox', 'checkpoint', 'create', id);
      expect(point).toMatchObject({ sandbox_id: id, docker_image: image, depth: 0, error: null });
      await prime('sandbox', 'run', id, '--', 'sh', '-c', 'echo later > /root/s');
      expect((await call(['sandbox', 'checkpoint', 'create', 'nosuchsandbox'])).code).toBe(1);
    });

    works('sandbox checkpoint get', async () => {
      const end = Date.now() + 60_000;
      while (point.state !== 'DURABLE' && Date.now() < end)
        point = await json('sandbox', 'checkpoint', 'get', point.id);
      expect(point.state).toBe('DURABLE');
      expect(await prime('sandbox', 'checkpoint', 'get', point.id)).toMatch(/DURABLE[\s\S]*MiB/);
      expect((await call(['sandbox', 'checkpoint', 'get', 'nosuchpoint'])).stdout).toContain('404');
    });

    works('sandbox checkpoint list', async () => {
      expect((await checkpoints()).map((one) => one.id)).toEqual([point.id]);
      expect(await checkpoints('--checkpoint-id', 'another')).toEqual([]);
      expect(await prime('sandbox', 'checkpoint', 'list', id)).toContain('DURABLE');
    });

    works('sandbox checkpoint restore', async () => {
      const from = ['--memory-gb', '0.5', '-y'];
      const restored = made(await prime('sandbox', 'checkpoint', 'restore', point.id, ...from));
      await until(restored, 'RUNNING');
      expect(await prime('sandbox', 'run', restored, '--', 'cat', '/root/s')).toContain('saved');
      await prime('sandbox', 'delete', restored, '-y');
      expect((await call(['sandbox', 'checkpoint', 'restore', 'nosuchpoint', '-y'])).code).toBe(1);
    });

    works('sandbox fork', async () => {
      const child = made(await prime('sandbox', 'fork', id, '-y'));
      await until(child, 'RUNNING');
      expect(await prime('sandbox', 'run', child, '--', 'cat', '/root/s')).toContain('later');
      expect(await json<Details>('sandbox', 'get', child)).toMatchObject({
        name: 'story-fork',
        labels: ['story', version],
      });
      await prime('sandbox', 'delete', child, '-y');
    });

    works('sandbox checkpoint delete', async () => {
      expect(await prime('sandbox', 'checkpoint', 'delete', point.id, '-y')).toContain(point.id);
      expect(await checkpoints()).toHaveLength(1);
      expect(await prime('sandbox', 'checkpoint', 'delete', '--sandbox', id, '-y')).toContain('Deleted');
      expect(await checkpoints()).toEqual([]);
      expect((await call(['sandbox', 'checkpoint', 'delete', point.id, '-y'])).code).toBe(1);
    });
  }

  describe('what is not yet', () => {
    declareNotYet(tests, client, testMs, { sandbox: () => (newest ? id : container), call, image });
  });

  works('sandbox delete: one, many, by label, all', async () => {
    if (!newest) await prime('sandbox', 'delete', container, '-y');
    const made = [];
    for (const label of ['x', 'x', 'y', 'z']) made.push(await create('--label', label));
    const [one, two, three, four] = made as [string, string, string, string];
    expect(await call(['sandbox', 'delete', one], {}, 'n\n')).toMatchObject({ code: 0 });
    expect(await prime('sandbox', 'delete', '--label', 'x', '-y')).toContain('deleted 2 sandbox(es)');
    expect(await prime('sandbox', 'delete', `${three},nosuchsandbox`, '-y')).toMatch(/Failed to delete 1/);
    expect(await prime('sandbox', 'delete', id, '-y')).toContain('Successfully deleted');
    const again = await call(['sandbox', 'delete', id, '-y']);
    expect(again.code).toBe(1);
    expect(again.stdout).toContain('404');
    expect((await json<Details>('sandbox', 'get', one)).status).toBe('TERMINATED');
    expect(await listed()).toEqual([four]);
    expect(await prime('sandbox', 'delete', '--all', '-y')).toContain(four);
    expect(await prime('sandbox', 'delete', '--all', '-y')).toContain('No sandboxes to delete');
    const dead = await call(['sandbox', 'run', two, '--', 'true']);
    expect(dead.code).toBe(1);
    expect(dead.stdout).toMatch(/not running/i);
  });
});

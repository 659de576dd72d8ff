/** The commands against a server of the test: what goes to stdout, what to stderr, which exit code. */

import { beforeEach, describe, expect, it } from 'vitest';
import { event, until } from '../../sdk/tests/command-service.js';
import type { FakeApi } from './fake-api.js';
import { openForEachTest, openInput, type World } from './world.js';

let api: FakeApi;
let world: World;
openForEachTest((made) => {
  ({ api, world } = made);
});

describe('create', () => {
  it('prints the id alone, and sends what was asked for', async () => {
    world.env['TOKEN'] = 'abc';
    const { code, stdout } = await world.run([
      ...[
        'create',
        'python:3.11-slim',
        '--cpu',
        '2',
        '--memory',
        '0.5',
        '--disk',
        '20',
        '-e',
        'A=1',
        '-e',
        'TOKEN',
      ],
      ...['--secret', 'S=x', '-l', 'a', '-l', 'b', '--name', 'me', '--timeout', '2h', '--idle-timeout', '15'],
      ...['--network-deny', '*', '--', 'sleep', '5'],
    ]);
    expect([code, stdout]).toEqual([0, 'new1\n']);
    expect(api.creates[0]).toMatchObject({
      name: 'me',
      docker_image: 'python:3.11-slim',
      cpu_cores: 2,
      memory_gb: 0.5,
      disk_size_gb: 20,
      environment_vars: { A: '1', TOKEN: 'abc' },
      secrets: { S: 'x' },
      labels: ['a', 'b'],
      timeout_minutes: 120,
      idle_timeout_minutes: 15,
      network_allowlist: [],
      start_command: { executable: 'sleep', args: ['5'] },
    });
  });

  it('knows the other start commands, no limit, and the long form', async () => {
    await world.run(['sandbox', 'create', 'x', '--start-command', 'echo hi', '--timeout', '-1', '--no-wait']);
    await world.run(['create', 'x', '--entrypoint', '--init']);
    expect(api.creates[0]).toMatchObject({ start_command: 'echo hi', timeout_minutes: -1 });
    expect(api.creates[1]).toMatchObject({ entrypoint: true, init: true });
    expect(api.creates[1]).not.toHaveProperty('start_command');
  });

  it('says why a sandbox does not start', async () => {
    api.intercept = (method, path) =>
      method === 'GET' && path === '/sandbox/new1'
        ? {
            status: 200,
            body: {
              id: 'new1',
              status: 'ERROR',
              labels: [],
              errorType: 'IMAGE_PULL_FAILED',
              errorMessage: 'no such image x',
            },
          }
        : undefined;
    const { code, stdout, stderr } = await world.run(['create', 'x']);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain('sandlot create: sandbox new1 does not run (ERROR): no such image x');
  });

  it('says when the start command could not be run', async () => {
    api.created = { exitCode: 127 };
    const { code, stdout, stderr } = await world.run(['create', 'x', '--', 'nosuchcmd']);
    expect([code, stdout]).toEqual([0, 'new1\n']);
    expect(stderr).toMatch(
      /^warning: the start command ended with 127: it was not found; .sandlot logs new1/,
    );
    api.created = { exitCode: 1 };
    expect((await world.run(['create', 'x', '--', 'false'])).stderr).toBe('');
  });

  it('says when a time is rounded', async () => {
    const { code, stderr } = await world.run(['create', 'x', '--timeout', '30s', '--idle-timeout', '1.5']);
    expect(code).toBe(0);
    expect(api.creates[0]).toMatchObject({ timeout_minutes: 1, idle_timeout_minutes: 2 });
    expect(stderr).toContain('--timeout 30s: rounded up to 1 minute,');
    expect(stderr).toContain('--idle-timeout 1.5: rounded up to 2 minutes,');
    expect((await world.run(['create', 'x', '--timeout', '120s'])).stderr).toBe('');
  });

  it('says what is weaker than was asked for, apart from the id', async () => {
    api.intercept = (method, path) =>
      method === 'GET' && path === '/sandbox/new1'
        ? {
            status: 200,
            body: { id: 'new1', status: 'RUNNING', labels: [], warnings: ['no CPU limit here'] },
          }
        : undefined;
    const { code, stdout, stderr } = await world.run(['create', 'x', '--cpu', '0.5']);
    expect([code, stdout]).toEqual([0, 'new1\n']);
    expect(stderr).toContain('warning: no CPU limit here\n');
  });

  it('gives the code of the table and the wrong flag', async () => {
    api.intercept = () => ({
      status: 422,
      body: {
        detail:
          'The request is not valid. cpu_cores: Must be at most 16. environment_vars.A=: No. labels.0: Long.',
        code: 'INVALID_REQUEST',
        errors: [
          { param: 'cpu_cores', details: 'Must be at most 16.' },
          { param: 'environment_vars.A=', details: 'No.' },
          { param: 'labels.0', details: 'Long.' },
        ],
        request_id: 'r9',
      },
    });
    for (const args of [
      ['create', 'x'],
      ['sandbox', 'create', 'x'],
      ['run', '--image', 'x', 'ls'],
    ]) {
      const { code, stderr } = await world.run(args);
      expect(code).toBe(args[0] === 'run' ? 125 : 64);
      expect(stderr).toContain(
        ': The request is not valid. --cpu: Must be at most 16. --env A=: No. --label: Long.',
      );
      expect(stderr).toContain('r9');
    }
    const json = await world.run(['create', 'x', '--cpu', '99', '--output', 'json']);
    expect(JSON.parse(json.stderr).error).toMatchObject({
      code: 'INVALID_REQUEST',
      status: 422,
      requestId: 'r9',
      problems: [{ field: 'cpu_cores' }, { field: 'environment_vars.A=' }, { field: 'labels.0' }],
    });
  });

  it('says flags also where a text names another field', async () => {
    api.intercept = () => ({
      status: 422,
      body: {
        detail: 'idle_timeout_minutes: Must not be more than timeout_minutes, which is 60.',
        code: 'INVALID_REQUEST',
        errors: [{ param: 'idle_timeout_minutes', details: 'x' }],
      },
    });
    expect((await world.run(['create', 'x'])).stderr).toContain(
      '--idle-timeout: Must not be more than --timeout, which is 60.',
    );
  });
});

describe('run', () => {
  beforeEach(() => api.add('abcdef'));

  it('passes both streams and the exit code on', async () => {
    api.commands.play = async function* () {
      yield event.start();
      yield event.stdout('out');
      yield event.stderr('err');
      yield event.end(7);
    };
    expect(await world.run(['run', 'abc', '--', 'sh', '-c', 'x'])).toEqual({
      code: 7,
      stdout: 'out',
      stderr: 'err',
    });
    expect(api.commands.starts[0]).toMatchObject({ command: { cmd: 'sh', args: ['-c', 'x'] }, stdin: false });
  });

  it('takes its options before and after the id', async () => {
    await world.run(['run', '-e', 'A=1', 'abc', '-w', '/x', '-u', 'u', '--', 'ls', '-la']);
    expect(api.commands.starts[0]?.command).toMatchObject({
      cmd: 'ls',
      args: ['-la'],
      envs: { A: '1' },
      cwd: '/x',
      user: 'u',
    });
  });

  it('passes input on only with -i, and its end', async () => {
    api.commands.play = async function* (request) {
      yield event.start();
      if (request.stdin) await until(() => api.commands.inputs.at(-1)?.closeStdin === true);
      yield event.end(0);
    };
    await world.run(['run', 'abc', 'cat'], { stdin: 'lost' });
    expect(api.commands.inputs).toHaveLength(0);
    await world.run(['run', '-i', 'abc', 'cat'], { stdin: 'hello' });
    expect(new TextDecoder().decode(api.commands.inputs[0]?.input?.input.value)).toBe('hello');
    expect(api.commands.inputs[1]?.closeStdin).toBe(true);
  });

  it('does not wait for input when the command has ended', async () => {
    api.commands.play = async function* () {
      yield event.start();
      yield event.end(3);
    };
    expect((await world.run(['run', '-i', 'abc', 'true'], { stdin: openInput() })).code).toBe(3);
  });

  it('asks for a terminal of the window size', async () => {
    api.commands.play = async function* () {
      yield event.start();
      yield event.pty('$ ');
      yield event.end(0);
    };
    const input = openInput();
    const { stdout } = await world.run(['run', 'abc', '-t', '--', 'sh'], { stdin: input, tty: true });
    expect(stdout).toBe('$ ');
    expect(api.commands.starts[0]?.pty?.size).toMatchObject({ cols: 120, rows: 40 });
    expect(api.commands.starts[0]?.stdin).toBe(true);
  });

  it('sends the first Ctrl-C as SIGINT and the second as SIGKILL', async () => {
    api.commands.play = async function* () {
      yield event.start();
      await until(() => api.commands.signals.length === 2);
      yield event.end(137);
    };
    const running = world.run(['run', 'abc', 'sleep', '9']);
    await until(() => api.commands.starts.length === 1 && world.leftListeners() > 0);
    world.signal('SIGINT');
    await until(() => api.commands.signals.length === 1);
    world.signal('SIGINT');
    expect((await running).code).toBe(137);
    expect(api.commands.signals.slice(0, 2).map(({ signal }) => signal)).toEqual([2, 9]);
  });

  it('exits with 125 when the command could not be run, 124 when its time is over', async () => {
    expect((await world.run(['run', 'zzz', 'ls'])).code).toBe(125);
    const { Code, ConnectError } = await import('@connectrpc/connect');
    api.commands.play = async function* () {
      yield event.start();
      throw new ConnectError('late', Code.DeadlineExceeded);
    };
    const { code, stderr } = await world.run(['run', '--timeout', '3', 'abc', 'sleep', '9']);
    expect(code).toBe(124);
    expect(stderr).toContain('did not end within 3 s');
    await api.close();
    expect((await world.run(['run', 'abc', 'ls'])).code).toBe(125);
  });

  it('gives one object as JSON', async () => {
    api.commands.play = async function* () {
      yield event.start();
      yield event.stdout('out');
      yield event.end(4);
    };
    const { code, stdout } = await world.run(['run', '-o', 'json', 'abc', 'x']);
    expect(code).toBe(4);
    expect(JSON.parse(stdout)).toMatchObject({ stdout: 'out', stderr: '', exitCode: 4, timedOut: false });
  });

  it('makes a sandbox for --image and removes it, whatever happens', async () => {
    api.commands.play = async function* () {
      yield event.start();
      yield event.end(9);
    };
    const first = await world.run(['run', '--image', 'alpine', '--cpu', '2', '-e', 'A=1', 'echo', '-n']);
    expect([first.code, first.stdout]).toEqual([9, '']);
    expect(api.creates[0]).toMatchObject({ docker_image: 'alpine', cpu_cores: 2 });
    expect(api.commands.starts[0]?.command).toMatchObject({ cmd: 'echo', args: ['-n'], envs: { A: '1' } });
    api.commands.play = async function* () {
      yield event.start();
      throw new Error('broken');
    };
    expect((await world.run(['run', '--image', 'alpine', 'x'])).code).toBe(125);
    expect(api.deletes).toEqual(['new1', 'new2']);
  });
});

describe('ls, get, logs', () => {
  beforeEach(() => {
    api.add('abc1', { labels: ['x'] });
    api.add('abd2', { status: 'TERMINATED' });
  });

  it('list what lives, or all, as a table, as ids, as JSON', async () => {
    const { stdout } = await world.run(['ls']);
    expect(stdout.split('\n')[0]).toMatch(/^ID +NAME +IMAGE +STATUS/);
    expect(stdout).toContain('abc1');
    expect(stdout).not.toContain('abd2');
    expect((await world.run(['ls', '--all', '-q'])).stdout).toBe('abc1\nabd2\n');
    expect(JSON.parse((await world.run(['ls', '-o', 'json', '-l', 'x'])).stdout)).toHaveLength(1);
    const none = await world.run(['ls', '-l', 'nothing']);
    expect(none.stdout.trim().split('\n')).toHaveLength(1);
    expect(none.stderr).toContain('none lives');
  });

  it('show one by a beginning of its id', async () => {
    const { stdout } = await world.run(['get', 'abc']);
    expect(stdout).toMatch(/status +RUNNING/);
    expect(stdout).toContain('restore 50 ms');
    const wrong = await world.run(['get', 'nope']);
    expect(wrong.code).toBe(66);
    expect(wrong.stderr).toContain('there is no sandbox nope');
  });

  it('show what one that starts is doing, and what is weaker than was asked for', async () => {
    api.add('slow3', { status: 'PROVISIONING', stage: 'queue', warnings: ['no CPU limit here', 'no shell'] });
    const { stdout } = await world.run(['get', 'slow3']);
    expect(stdout).toMatch(/^stage +queue$/m);
    expect(stdout).toMatch(/^warning +no CPU limit here$/m);
    expect(stdout).toMatch(/^warning +no shell$/m);
  });

  it("know the image's own start command", async () => {
    api.add('own5', { entrypoint: true });
    expect((await world.run(['get', 'own5'])).stdout).toMatch(/^start command +the image's own/m);
    api.logs = '';
    expect((await world.run(['logs', 'own5'])).stderr).toBe('');
    expect((await world.run(['logs', 'abc1'])).stderr).toContain('has no start command');
  });

  it('print logs with a last newline', async () => {
    expect((await world.run(['logs', 'abc1'])).stdout).toBe('line one\nline two\n');
  });
});

describe('pause, resume, fork', () => {
  beforeEach(() => {
    api.add('abc1');
    api.add('abd2');
  });

  it('pause and resume each that is named', async () => {
    expect((await world.run(['pause', 'abc', 'abd2'])).stdout).toBe('abc1\nabd2\n');
    expect(api.sandboxes.map(({ status }) => status)).toEqual(['PAUSED', 'PAUSED']);
    const resumed = await world.run(['resume', 'abc1', '-o', 'json']);
    expect(JSON.parse(resumed.stdout)).toMatchObject({ id: 'abc1', status: 'RUNNING' });
  });

  it('fork prints an id a line, and says which copies do not run', async () => {
    const options = ['-n', '2', '--label', 'g=7', '--env', 'K=V', '--timeout', '2h', '--partial'];
    const { code, stdout } = await world.run(['fork', 'abc', ...options]);
    expect([code, stdout]).toEqual([0, 'abc1-1\nabc1-2\n']);
    expect(api.forks[0]).toMatchObject({
      ...{ count: 2, labels: ['g=7'], environment_vars: { K: 'V' } },
      ...{ timeout_minutes: 120, allow_partial: true },
    });
    api.forkErrors = [{ index: 2, code: 'CAPACITY', message: 'there was no room' }];
    const partial = await world.run(['fork', 'abc1', '-n', '3']);
    expect([partial.code, partial.stderr]).toEqual([1, 'sandlot fork: copy 3: there was no room\n']);
  });

  it('create says what becomes of an idle one', async () => {
    await world.run(['create', 'img', '--idle-action', 'pause', '--idle-timeout', '5', '--no-wait']);
    expect(api.creates[0]).toMatchObject({ idle_action: 'pause', idle_timeout_minutes: 5 });
  });
});

describe('rm', () => {
  beforeEach(() => {
    api.add('abc1', { labels: ['x'] });
    api.add('abd2');
  });

  it('removes by id, by label, and all', async () => {
    expect((await world.run(['rm', 'abc'])).stdout).toBe('abc1\n');
    expect((await world.run(['rm', '--label', 'x'])).stdout).toBe('abc1\n');
    expect((await world.run(['rm', '--all'])).stdout).toBe('abc1\nabd2\n');
  });

  it('goes on past one that is wrong, and says so', async () => {
    const { code, stdout, stderr } = await world.run(['rm', 'nope', 'abd2']);
    expect([code, stdout]).toEqual([66, 'abd2\n']);
    expect(stderr).toContain('nope: there is no sandbox nope');
  });

  it('says of one that was removed before that it was, alone and among others', async () => {
    api.add('gone3', { status: 'TERMINATED', terminatedAt: '2026-01-01T00:00:00Z' });
    api.removed.add('gone3');
    const alone = await world.run(['rm', 'gone3']);
    expect([alone.code, alone.stdout]).toEqual([66, '']);
    expect(alone.stderr).toContain('gone3: it was removed already and ended 2026-01-01T00:00:00Z');
    const first = await world.run(['rm', 'gone3', 'ab']);
    expect(first.code).toBe(66);
    expect(first.stderr.split('\n').map((line) => line.split(' ')[2])).toEqual(['gone3:', 'ab:', undefined]);
    const among = await world.run(['rm', 'gone3', 'abd2', 'abc1', '-o', 'json']);
    expect(among.code).toBe(66);
    expect(JSON.parse(among.stdout)).toMatchObject({
      succeeded: ['abc1', 'abd2'],
      failed: [{ id: 'gone3', error: expect.stringContaining('removed already') }],
    });
  });

  it('asks before --all only on a terminal', async () => {
    const input = openInput();
    input.write('n\n');
    const { code, stdout } = await world.run(['rm', '--all'], { stdin: input, tty: true });
    expect([code, stdout]).toEqual([1, '']);
    expect(api.deletes).toEqual([]);
  });
});

/** The grammar: what is accepted, what is refused with 2, and which words belong to the command of `run`. */
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { normalizeRunArguments } from '../src/grammar/run-arguments.js';
import { buildProgram } from '../src/program.js';
import { version } from '../src/version.js';
import { World } from './world.js';

const world = new World();
world.env['SANDLOT_URL'] = 'http://127.0.0.1:9';
afterAll(() => world.remove());

const program = buildProgram({ stdout: process.stdout, stderr: process.stderr } as never, () => undefined);
const order = (line: string) => normalizeRunArguments(line.split(' '), program).join(' ');

describe('words of `run`', () => {
  it.each([
    ['run ID ls', 'run -- ID ls'],
    ['run ID -- ls -la', 'run -- ID ls -la'],
    ['run ID ls -la', 'run -- ID ls -la'],
    ['run -t ID -- sh', 'run -t -- ID sh'],
    ['run ID -t -- sh', 'run -t -- ID sh'],
    ['run ID -it sh -i', 'run -it -- ID sh -i'],
    ['run -e A=1 ID -w /x env -u B', 'run -e A=1 -w /x -- ID env -u B'],
    ['run -itw /x ID pwd', 'run -itw /x -- ID pwd'],
    ['run --timeout=5 ID sleep 9', 'run --timeout=5 -- ID sleep 9'],
    ['run --timeout 5 ID sleep 9', 'run --timeout 5 -- ID sleep 9'],
    ['run --image alpine echo --image x', 'run --image alpine -- echo --image x'],
    ['run --image=alpine -- echo -n x', 'run --image=alpine -- echo -n x'],
    ['run ID -- -x', 'run -- ID -x'],
    ['run ID -- a -- b', 'run -- ID a -- b'],
    ['run ID cat -', 'run -- ID cat -'],
    ['sandbox run ID -t -- sh', 'sandbox run -t -- ID sh'],
    ['ls --all', 'ls --all'],
  ])('%s', (given, wanted) => {
    expect(order(given)).toBe(wanted);
  });

  it('never changes the words of the command', () => {
    const word = fc.string({ minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(
        fc.array(word, { maxLength: 6 }),
        fc.subarray(['-t', '-i', '--output=json']),
        (command, options) => {
          const result = normalizeRunArguments(['run', ...options, 'ID', '--', ...command], program);
          expect(result).toEqual(['run', ...options, '--', 'ID', ...command]);
        },
      ),
    );
  });
});

describe('usage errors exit with 2 and say what is wrong', () => {
  it.each([
    [['frobnicate'], /unknown command/],
    [['ls', '--frob'], /unknown option/],
    [['create'], /an image name is missing/],
    [['create', ''], /an image name is missing/],
    [['run', '--image', '', 'ls'], /an image name is missing/],
    [['create', 'x', '--cpu', 'many'], /above 0/],
    [['create', 'x', '--memory', '0'], /above 0/],
    [['create', 'x', '--output', 'xml'], /table, json/],
    [['create', 'x', '--timeout', 'soon'], /not a time/],
    [['create', 'x', '-e', '=1'], /variable's name/],
    [['create', 'x', '-e', 'NOT_SET_HERE'], /no value here/],
    [['create', 'x', '--entrypoint', '--', 'ls'], /more than one start command/],
    [['create', 'x', '--network-allow', 'a', '--network-deny', 'b'], /exclude each other/],
    [['run'], /an id and a command/],
    [['run', 'id'], /a command is missing/],
    [['run', '--image', 'x'], /a command is missing/],
    [['run', '--cpu', '2', 'id', 'ls'], /--cpu needs --image/],
    [['upload', 'id', 'x'], /missing required argument/],
    [['rm'], /nothing to remove/],
    [['rm', 'id', '--all'], /exclude each other/],
    [['team', 'add', 't', 'u', '--role', 'king'], /neither admin nor member/],
    [['completion', 'tcsh'], /no completion/],
    [['config', 'set', 'colour', 'red'], /no setting/],
    [['config', 'set', 'url', 'nonsense'], /is not a URL; give one such as/],
    [['up', '--kvm', 'maybe'], /auto, never/],
    [['ls', 'extra'], /too many arguments/],
  ])('%j', async (args, message) => {
    const { code, stdout, stderr } = await world.run(args);
    expect(stderr).toMatch(message);
    expect(code).toBe(2);
    expect(stdout).toBe('');
  });

  it('names the command whose help explains it', async () => {
    expect((await world.run(['get'])).stderr).toBe(
      "sandlot get: missing required argument 'id'\n  See `sandlot get --help`.\n",
    );
    expect((await world.run(['image', 'pull'])).stderr).toContain('See `sandlot image pull --help`');
    expect((await world.run(['--output', 'json', 'ls'])).stderr).toContain(
      'after the command: `sandlot ls --output',
    );
    expect((await world.run(['ls', '--outputs'])).stderr).not.toContain('after the command');
    expect((await world.run(['--frob'])).stderr).toContain('See `sandlot --help`');
  });
});

describe('help and version', () => {
  it('go to stdout and exit with 0', async () => {
    for (const args of [
      ['--help'],
      ['run', '--help'],
      ['image', 'pull', '--help'],
      ['sandbox', 'create', '--help'],
    ]) {
      const { code, stdout, stderr } = await world.run(args);
      expect([code, stderr]).toEqual([0, '']);
      expect(stdout).toContain('Usage: sandlot');
    }
    expect(await world.run(['-V'])).toEqual({ code: 0, stdout: `${version()}\n`, stderr: '' });
  });

  it('tell which options of `run` need --image, and the defaults of a new sandbox', async () => {
    const run = (await world.run(['run', '--help'])).stdout;
    const [before = '', after = ''] = run.split('Only with --image, for the new sandbox:');
    for (const option of ['--cpu', '--secret', '--label', '--name', '--team', '--network-deny'])
      expect([before.includes(`${option} `), after.includes(`${option} `)]).toEqual([false, true]);
    for (const option of ['--env', '--timeout', '--workdir', '--image']) expect(before).toContain(option);
    const create = (await world.run(['create', '--help'])).stdout;
    expect(create).toMatch(/--cpu .*\(1\)\n.*--memory .*\(2\)\n.*--disk .*\(10\)\n/);
    expect(create).toMatch(/--timeout [^-]*-1 never\s+\(60\)/);
    expect((await world.run(['image', 'prune', '--help'])).stdout).toContain('a second ago');
  });

  it('describe every command, argument-less groups included', () => {
    const walk = (command: typeof program): void => {
      for (const sub of command.commands) {
        expect(sub.description(), sub.name()).not.toBe('');
        for (const option of sub.options)
          if (!option.hidden) expect(option.description, option.flags).not.toBe('');
        walk(sub);
      }
    };
    walk(program);
  });

  it('have --output on everything that prints a result', () => {
    const without = [
      'sandbox',
      'checkpoint',
      'image',
      'user',
      'team',
      'key',
      'completion',
      'set',
      'add',
      'revoke',
    ];
    const walk = (command: typeof program): void => {
      for (const sub of command.commands) {
        const has = sub.options.some((option) => option.long === '--output');
        expect(has, sub.name()).toBe(!without.includes(sub.name()));
        walk(sub);
      }
    };
    walk(program);
  });

  it('offer the long form for every sandbox command', () => {
    const names = (command: typeof program) => command.commands.map((sub) => sub.name());
    const long = program.commands.find((command) => command.name() === 'sandbox');
    expect(names(long as typeof program)).toEqual([
      'create',
      'run',
      'ls',
      'get',
      'logs',
      'fork',
      'pause',
      'resume',
      'rm',
      'upload',
      'download',
    ]);
    for (const name of names(long as typeof program)) expect(names(program)).toContain(name);
  });
});

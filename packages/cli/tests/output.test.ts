/** Tables, units, settings and failure texts. */
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  AuthenticationError,
  ConnectionError,
  FileNotFoundError,
  NotFoundError,
  PermissionError,
  SandboxNotRunningError,
  ValidationError,
} from '@sandlot/sdk';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CliError } from '../src/cli-error.js';
import { describeFailure } from '../src/failure.js';
import { properties, table } from '../src/output/table.js';
import { age, bytes, parseDuration, parsePairs } from '../src/output/units.js';
import { configPath, readConfigFile, readSettings, writeConfigFile } from '../src/settings.js';
import { World } from './world.js';

let world: World;
beforeEach(() => {
  world = new World();
});
afterEach(() => world.remove());

describe('table', () => {
  it('is plain columns without trailing blanks', () => {
    expect(
      table(
        ['ID', 'NAME'],
        [
          ['a', 'long name'],
          ['bcd', ''],
        ],
      ),
    ).toBe('ID   NAME\na    long name\nbcd');
    expect(table(['ID', 'NAME'], [])).toBe('ID  NAME');
  });

  it('lets nothing from a guest steer the terminal', () => {
    expect(table(['X'], [['a\u001b[2Jb\nc']])).toBe('X\na [2Jb c');
  });

  it('leaves out what is not known', () => {
    expect(
      properties([
        ['a', 1],
        ['long', undefined],
        ['b', ''],
        ['cc', 'x'],
      ]),
    ).toBe('a   1\ncc  x');
  });
});

describe('units', () => {
  it('for people', () => {
    expect([0, 1023, 1024, 1536, 2 ** 30, 150 * 2 ** 20].map(bytes)).toEqual([
      '0 B',
      '1023 B',
      '1.0 KiB',
      '1.5 KiB',
      '1.0 GiB',
      '150 MiB',
    ]);
    const now = Date.parse('2026-01-02T00:00:00Z');
    expect(age('2026-01-01T23:59:01Z', now)).toBe('59 s');
    expect(age('2026-01-01T23:00:00Z', now)).toBe('60 min');
    expect(age('2025-12-01T00:00:00Z', now)).toBe('32 d');
    expect(age(undefined, now)).toBe('');
  });

  it('from people', () => {
    expect(parseDuration('90', 's', '-t')).toBe(90);
    expect(parseDuration('90', 'min', '-t')).toBe(5_400);
    expect(parseDuration('1.5h', 's', '-t')).toBe(5_400);
    expect(() => parseDuration('1w', 's', '--timeout')).toThrow(CliError);
    expect(parsePairs(['A=1', 'B=x=y', 'C', 'D='], { C: 'here' }, '-e')).toEqual({
      A: '1',
      B: 'x=y',
      C: 'here',
      D: '',
    });
  });
});

describe('settings', () => {
  it('come from the environment, then the file, then the defaults', () => {
    const file = configPath(world.home);
    expect(readSettings({}, world.home, false)).toMatchObject({
      url: { value: 'http://127.0.0.1:7070', from: 'default' },
      apiKey: undefined,
      data: { value: path.join(world.home, '.local/share/sandlot'), from: 'default' },
      file,
    });
    expect(readSettings({}, world.home, true).data.value).toBe('/var/lib/sandlot');
    writeConfigFile(file, { url: 'http://a', api_key: 'k' });
    expect(readSettings({ SANDLOT_URL: 'http://b' }, world.home, false)).toMatchObject({
      url: { value: 'http://b', from: 'environment' },
      apiKey: { value: 'k', from: 'file' },
    });
  });

  it('are kept for the owner alone, change by change', () => {
    const file = configPath(world.home);
    writeConfigFile(file, { url: 'http://a', api_key: 'k' });
    writeConfigFile(file, { api_key: undefined, data: '/d' });
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({ url: 'http://a', data: '/d' });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(path.dirname(file)).mode & 0o777).toBe(0o700);
  });

  it('in a broken file are an error that names it', () => {
    const file = configPath(world.home);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, '{');
    expect(() => readConfigFile(file)).toThrow(/config\.json is not valid JSON/);
  });
});

describe('config', () => {
  it('shows url and key as JSON, and the beginning of the key for people', async () => {
    await world.run(['config', 'set', 'api_key', 'sl_0123456789abcdef']);
    const json = JSON.parse((await world.run(['config', '--output', 'json'])).stdout);
    expect(json).toMatchObject({ url: 'http://127.0.0.1:7070', api_key: 'sl_0123456789abcdef' });
    const { stdout } = await world.run(['config']);
    expect(stdout).toContain('sl_01234…');
    expect(stdout).not.toContain('9abcdef');
  });
});

describe('a failure says what failed, why, and what to do', () => {
  const text = (error: unknown, args = ['image', 'pull', 'x']) => describeFailure(error, args, 1).text;

  it('for a server that does not run', () => {
    expect(
      text(new ConnectionError('GET http://x: connection refused', { code: 'ECONNREFUSED' }), ['ls']),
    ).toBe(
      'sandlot ls: GET http://x: connection refused\n  Start the server with `sandlot up --detach`, or name another with SANDLOT_URL.\n',
    );
  });

  it('for wrong fields, with the request id', () => {
    const error = new ValidationError('the request is wrong', { status: 422, requestId: 'r1' }, [
      { field: 'cpu_cores', problem: 'must be at most 16' },
    ]);
    expect(text(error)).toBe(
      'sandlot image pull: the request is wrong\n  cpu_cores: must be at most 16\n  (request r1)\n',
    );
  });

  it('for one of our own, with its cause', () => {
    const error = new CliError('x cannot be read', { cause: new Error('ENOENT'), hint: 'Check the path.' });
    expect(text(error, ['upload'])).toBe(
      'sandlot upload: x cannot be read\n  because: ENOENT\n  Check the path.\n',
    );
  });

  it('and what the server advises goes before what we would', () => {
    const error = new SandboxNotRunningError('it ended', { hint: 'Use more memory.' }, 'ERROR', 'OOM_KILLED');
    expect(text(error, ['run', 'id', 'ls'])).toBe('sandlot run: it ended\n  Use more memory.\n');
  });

  it('without a hint that says the same as the server', () => {
    const key = new AuthenticationError(
      'The API key is unknown or revoked. `sandlot key create` makes a new one.',
      {
        status: 401,
      },
    );
    expect(text(key, ['ls']).match(/makes/g)).toHaveLength(1);
    expect(text(key, ['ls'])).toContain('SANDLOT_API_KEY');
    const image = new NotFoundError('there is no image nope:1 here; `sandlot image ls` lists them', {
      status: 404,
    });
    expect(text(image, ['image', 'inspect'])).toBe(
      'sandlot image inspect: there is no image nope:1 here; `sandlot image ls` lists them\n',
    );
    const right = new PermissionError(
      "Make a user: this needs an admin's key, or the admin socket on the server.",
    );
    expect(text(right, ['user', 'create']).split('\n')).toHaveLength(3);
    expect(text(right, ['user', 'create'])).not.toContain('admin key is needed');
  });

  it('without repeating advice, and with it where there is none', () => {
    const advised = new NotFoundError('There is no x. Check the id with `sandlot ls`.', { status: 404 });
    expect(text(advised, ['get'])).toBe('sandlot get: There is no x. Check the id with `sandlot ls`.\n');
    expect(text(new NotFoundError('no x', { status: 404 }), ['get'])).toContain('`sandlot ls --all`');
    const failed = new SandboxNotRunningError('the reason', {}, 'ERROR', 'IMAGE_PULL_FAILED');
    expect(text(failed, ['create'])).toBe('sandlot create: the reason\n');
    const ended = new SandboxNotRunningError('it was deleted', {}, 'TERMINATED', undefined);
    expect(text(ended, ['run'])).toContain('`sandlot create` starts a new one');
    expect(text(new FileNotFoundError('stat /x: No such file', {}), ['download'])).toContain(
      'Check the path',
    );
  });
});

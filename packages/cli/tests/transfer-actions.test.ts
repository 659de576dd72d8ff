/** `upload` and `download` against a server of the test: what is moved, and what is said about wrong paths. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { FakeApi } from './fake-api.js';
import { openForEachTest, type World } from './world.js';

let api: FakeApi;
let world: World;
openForEachTest((made) => {
  ({ api, world } = made);
});

describe('upload and download', () => {
  beforeEach(() => api.add('abc1'));

  it('move files, streams and folders', async () => {
    const local = path.join(world.home, 'f');
    writeFileSync(local, 'content');
    expect((await world.run(['upload', 'abc', local, '/root/f'])).code).toBe(0);
    expect((await world.run(['upload', 'abc', local, '/dir/'])).stdout).toContain('/dir/f');
    expect((await world.run(['upload', 'abc', '-', '/s'], { stdin: 'piped' })).code).toBe(0);
    expect(api.files.get('/s')?.toString()).toBe('piped');
    expect((await world.run(['download', 'abc', '/root/f', '-'])).stdout).toBe('content');
    const back = path.join(world.home, 'back');
    await world.run(['download', 'abc', '/root/f', back]);
    expect(readFileSync(back, 'utf8')).toBe('content');
    mkdirSync(path.join(world.home, 'into'));
    await world.run(['download', 'abc', '/root/f', path.join(world.home, 'into')]);
    expect(readFileSync(path.join(world.home, 'into', 'f'), 'utf8')).toBe('content');

    mkdirSync(path.join(world.home, 'folder', 'sub'), { recursive: true });
    writeFileSync(path.join(world.home, 'folder', 'sub', 'x'), 'deep');
    await world.run(['upload', 'abc', path.join(world.home, 'folder'), '/folder']);
    await world.run(['download', 'abc', '/folder', path.join(world.home, 'folder2')]);
    expect(readFileSync(path.join(world.home, 'folder2', 'sub', 'x'), 'utf8')).toBe('deep');
  });

  it('say what is missing', async () => {
    const none = await world.run(['upload', 'abc', path.join(world.home, 'none'), '/f']);
    expect(none.code).toBe(1);
    expect(none.stderr).toContain('cannot be read');
    const gone = await world.run(['download', 'abc', '/none', '-']);
    expect(gone.code).toBe(66);
    expect(gone.stderr).toContain('there is no /none');
  });

  /** What the gateway answers for a path that the guest refuses. */
  const refuse = (status: number, error: string, detail: string) => {
    api.intercept = (_method, route) =>
      route.startsWith('/gw/') ? { status, body: { error, detail } } : undefined;
  };

  it('say what to do about a path of the wrong kind in the sandbox', async () => {
    const local = path.join(world.home, 'agent.py');
    writeFileSync(local, 'x');
    refuse(400, 'EISDIR', 'write /root: Is a directory');
    const folder = await world.run(['upload', 'abc', local, '/root']);
    expect(folder.code).toBe(64);
    expect(folder.stderr).toContain('end it in / to put the file into it (/root/)');
    expect((await world.run(['upload', 'abc', '-', '/root'], { stdin: 'x' })).stderr).toContain('full path');
    refuse(400, 'ENOTDIR', 'Not a directory');
    const file = await world.run(['upload', 'abc', world.home, '/root/agent.py']);
    expect(file.code).toBe(64);
    expect(file.stderr).toMatch(/upload: \/root\/agent\.py: Not a directory\n {2}A file is in the way/);
    expect((await world.run(['download', 'abc', '/root/f/x', '-'])).stderr).toContain('A part of /root/f/x');
    refuse(507, 'ENOSPC', 'No space left on device');
    expect((await world.run(['upload', 'abc', local, '/f'])).code).toBe(75);
  });

  it('want absolute paths of the sandbox', async () => {
    for (const args of [
      ['upload', 'abc', world.home, 'folder'],
      ['download', 'abc', '~/f', world.home],
    ]) {
      const { code, stderr } = await world.run(args);
      expect(code).toBe(2);
      expect(stderr).toMatch(/"(folder|~\/f)" is not an absolute path.*\n {2}.*\/root\/(folder|f)\./);
    }
  });

  it('make the folder of a downloaded file, and refuse a file where a folder must be', async () => {
    api.files.set('/f', Buffer.from('content'));
    const deep = path.join(world.home, 'no', 'dir', 'f');
    expect((await world.run(['download', 'abc', '/f', deep])).code).toBe(0);
    expect(readFileSync(deep, 'utf8')).toBe('content');
    const under = await world.run(['download', 'abc', '/f', path.join(deep, 'x')]);
    expect(under.stderr).toContain(`the folder ${deep} cannot be made`);
    await world.run(['upload', 'abc', path.join(world.home, 'no'), '/folder']);
    const into = await world.run(['download', 'abc', '/folder', deep]);
    expect(into.code).toBe(1);
    expect(into.stderr).toContain(`${deep} is a file, but /folder is a folder`);
    expect(readFileSync(deep, 'utf8')).toBe('content');
  });
});

/** Commands about accounts, images and the server itself, against a server of the test. */
import { mkdirSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { writeInstance } from '../src/up/instance.js';
import type { FakeApi } from './fake-api.js';
import { openForEachTest, type World } from './world.js';

let api: FakeApi;
let world: World;
openForEachTest((made) => {
  ({ api, world } = made);
});

/** What listens where the admin socket of a data folder is: counts, and answers with an empty list. */
class AdminSocket {
  asked = 0;
  readonly #server = http.createServer((_request, response) => {
    this.asked++;
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"data": [], "total_count": 0}');
  });

  static async open(home: string): Promise<AdminSocket> {
    const socket = path.join(home, 'data', 'run', 'admin.sock');
    mkdirSync(path.dirname(socket), { recursive: true });
    const admin = new AdminSocket();
    await new Promise<void>((resolve) => admin.#server.listen(socket, resolve));
    return admin;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

describe('commands about accounts', () => {
  it('act with a key that is given, else through the admin socket', async () => {
    const admin = await AdminSocket.open(world.home);
    try {
      const commands = [
        ['user', 'ls'],
        ['key', 'ls'],
        ['team', 'ls'],
      ];
      for (const command of commands) expect((await world.run(command)).code).toBe(0);
      expect([admin.asked, api.accountKeys]).toEqual([0, ['Bearer k', 'Bearer k', 'Bearer k']]);
      await world.run(['config', 'set', 'api_key', 'kept']);
      world.env['SANDLOT_API_KEY'] = undefined;
      for (const command of commands) expect((await world.run(command)).code).toBe(0);
      expect([admin.asked, api.accountKeys.length]).toEqual([3, 3]);
    } finally {
      await admin.close();
    }
    expect((await world.run(['key', 'ls'])).code).toBe(0);
    expect(api.accountKeys.at(-1)).toBe('Bearer kept');
  });

  it('find the admin socket also when the configuration names the public URL of this machine', async () => {
    const admin = await AdminSocket.open(world.home);
    world.env['SANDLOT_API_KEY'] = undefined;
    world.env['SANDLOT_URL'] = 'https://sandlot.invalid';
    const serverAt = (publicUrl: string) =>
      writeInstance(path.join(world.home, 'data', 'instance.json'), {
        ...{ instanceId: 'beef', createdAt: '' },
        options: { publicUrl, tlsCert: '/c', tlsKey: '/k' },
      });
    try {
      serverAt('https://sandlot.invalid/');
      expect([(await world.run(['key', 'ls'])).code, admin.asked]).toEqual([0, 1]);
      serverAt('https://elsewhere.invalid');
      expect((await world.run(['key', 'ls'])).code).not.toBe(0);
      expect(admin.asked).toBe(1);
    } finally {
      await admin.close();
    }
  });
});

describe('status', () => {
  it('tells of software emulation once', async () => {
    api.intercept = (_method, route) =>
      route === '/status'
        ? {
            status: 200,
            body: {
              ...{
                version: '1',
                accelerator: 'tcg',
                acceleratorReason: 'there is no /dev/kvm',
                networkMode: 'tap',
              },
              ...{ dataFolder: '/d', processes: [], machines: [], counts: {}, nodes: [] },
              warnings: ['Machines are emulated in software.'],
            },
          }
        : undefined;
    const { stdout, stderr } = await world.run(['status']);
    expect(stdout).toMatch(/^accelerator +tcg: there is no \/dev\/kvm$/m);
    expect(stderr).toBe('warning: Machines are emulated in software.\n');
  });
});

describe('image import', () => {
  const stage = (name: string, message?: string) => ({ stage: name, doneBytes: 0, totalBytes: 0, message });

  it('says each stage once', async () => {
    const file = path.join(world.home, 'image.tar');
    writeFileSync(file, 'x');
    api.importAnswer = [
      ...[stage('download', 'receiving'), stage('read'), stage('finish'), stage('read'), stage('build')],
      ...[stage('finish'), { done: { reference: 'my:1', digest: 'sha256:1' } }],
    ];
    const { code, stderr } = await world.run(['image', 'import', file, 'my:1']);
    expect(code).toBe(0);
    const lines = stderr.trim().split('\n');
    expect(new Set(lines).size).toBe(lines.length);
    expect(lines).toHaveLength(4);
  });

  it('names the file that is no image, and exits as the table says', async () => {
    const file = path.join(world.home, 'image.tar');
    writeFileSync(file, 'x');
    api.importAnswer = [{ error: { code: 'invalid-manifest', message: 'it is no image' } }];
    const broken = await world.run(['image', 'import', file, 'my:1']);
    expect(broken.code).toBe(65);
    expect(broken.stderr).toContain(`sandlot image import: ${file}: it is no image`);
    expect((await world.run(['image', 'import', '-', 'my:1'], { stdin: 'x' })).stderr).toContain(
      'standard input: ',
    );
    api.importAnswer = [{ error: { code: 'invalid-reference', message: 'my:: is no name' } }];
    const name = await world.run(['image', 'import', file, 'my::']);
    expect(name.code).toBe(64);
    expect(name.stderr).not.toContain(file);
  });
});

describe('image rm', () => {
  it('goes on past one that is used, with the code of the first failure', async () => {
    api.intercept = (method, route) => {
      if (method !== 'DELETE') return undefined;
      if (route.endsWith('used')) return { status: 409, body: { detail: 'in use', code: 'CONFLICT' } };
      if (route.endsWith('free')) return { status: 200, body: { removed: true } };
      return undefined;
    };
    const { code, stdout, stderr } = await world.run(['image', 'rm', 'used', 'nope', 'free']);
    expect([code, stdout]).toEqual([73, 'free\n']);
    expect(stderr).toContain('used: in use');
    expect((await world.run(['image', 'rm', 'nope'])).code).toBe(66);
  });
});

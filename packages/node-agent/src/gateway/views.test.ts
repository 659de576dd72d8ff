/** Views at the gateway: which one an exec gets, and what an agent's token may do. The guest is a list of what it was asked. */
import { generateKeyPairSync, sign } from 'node:crypto';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Client, Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { CommandSession, type ExecInfo, type ExecStart, type GuestView } from '@sandlot/protocol';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ExecEvent } from '../guest/exec-stream.js';
import { ExecViews } from '../sandbox/exec-views.js';
import type { Sandboxes } from '../sandbox/sandboxes.js';
import { Gateway } from './gateway.js';
import { TokenVerifier } from './token.js';

const { publicKey, privateKey } = generateKeyPairSync('ed25519');
const shop: GuestView = { strength: 'sealed', hide: ['/srv/shop'] };

function tokenOf(claims: object): string {
  const exp = Math.floor(Date.now() / 1000) + 60;
  const text = JSON.stringify({ sub: 'sb', gen: 1, exp, ...claims });
  const body = `v1.${Buffer.from(text).toString('base64url')}`;
  return `${body}.${sign(null, Buffer.from(body), privateKey).toString('base64url')}`;
}

/** What a guest is asked, and what it knows. */
class FakeGuest {
  readonly starts: ExecStart[] = [];
  readonly signals: string[] = [];
  readonly inputs: string[] = [];
  readonly execs: ExecInfo[] = [];
  /** Commands without a session run until this resolves. */
  held: Promise<void> | undefined;
  #count = 0;

  exec = async (spec: ExecStart) => {
    this.starts.push(spec);
    const id = spec.sessionId ?? `exec-${++this.#count}`;
    const pid = 100 + this.execs.length;
    const known = this.execs.find((info) => info.id === id);
    if (!known) this.#add(id, pid, spec);
    const { held } = this;
    return {
      cancel() {},
      async *events(): AsyncGenerator<ExecEvent> {
        yield { kind: 'start', started: { id, pid: known?.pid ?? pid } };
        await held;
        const end = { exitCode: 0, signal: 0, oomKilled: false, timedOut: false, droppedBytes: 0 };
        yield { kind: 'end', end };
      },
    };
  };

  attach = (id: string) => this.exec({ argv: ['attached'], sessionId: id });
  listExecs = async () => ({ sessions: [...this.execs] });
  sendSignal = async (id: string) => void this.signals.push(id);
  sendInput = async (id: string) => void this.inputs.push(id);
  confirmReceived = async () => undefined;
  stat = async () => ({ kind: 'file' });

  #add(id: string, pid: number, { argv, sessionId, view }: ExecStart): void {
    this.execs.push({ id, pid, argv, session: sessionId !== undefined, ...(view ? { view: true } : {}) });
  }
}

let guest: FakeGuest;
let saved: string[][];
let server: http.Server;
let base: string;
let view: GuestView | undefined;

/** The sandbox as an agent of the node finds it: `elsewhere` is what its record names. */
function makeSandbox(elsewhere: string[] = []) {
  const views = new ExecViews(
    elsewhere,
    async (ids) => void saved.push(ids),
    () => guest.listExecs(),
  );
  const spec = { generation: 1, ...(view ? { view } : {}) };
  return { guest, spec, views, report: { state: 'running' }, activity: { begin: () => () => {} } };
}

let sandbox: ReturnType<typeof makeSandbox>;
beforeEach(async () => {
  guest = new FakeGuest();
  saved = [];
  view = shop;
  sandbox = makeSandbox();
  const sandboxes = { get: () => sandbox } as unknown as Sandboxes;
  const gateway = new Gateway(sandboxes, new TokenVerifier(publicKey), pino({ level: 'silent' }));
  server = http.createServer((request, response) => void gateway.handle(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/gw/u/sb`;
});
afterEach(() => {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(resolve));
});

const owner = tokenOf({});
const agent = tokenOf({ view: true });

async function rest(token: string, method: string, route: string, body?: unknown) {
  const answer = await fetch(`${base}/${route}`, {
    method,
    headers: { authorization: `Bearer ${token}` },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

const exec = (token: string, asked?: unknown) => rest(token, 'POST', 'exec', { command: 'x', view: asked });

function service(token: string): Client<typeof CommandSession> {
  const transport = createConnectTransport({
    baseUrl: base,
    httpVersion: '1.1',
    interceptors: [
      (next) => (request) => {
        request.header.set('authorization', `Bearer ${token}`);
        return next(request);
      },
    ],
  });
  return createClient(CommandSession, transport);
}

interface Start {
  sessionUuid?: string;
  view?: { strength?: string; hide?: string[]; readonly?: string[]; privateTmp?: boolean; network?: string };
}

/** Runs a command to its end; the name of the code of a failure. */
async function start(token: string, request: Start = {}): Promise<string> {
  try {
    for await (const _ of service(token).start({ command: { cmd: 'x' }, ...request }));
    return 'ok';
  } catch (error) {
    return Code[ConnectError.from(error).code];
  }
}

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'ok',
    (error: unknown) => Code[ConnectError.from(error).code],
  );
const bySession = (id: string) => ({ session: { selector: { case: 'sessionUuid' as const, value: id } } });
const byPid = (pid: number) => ({ session: { selector: { case: 'pid' as const, value: pid } } });

describe('the owner', () => {
  it('acts in the default view, in another, or outside of any, as asked for', async () => {
    const other = { strength: 'mask', hide: ['/opt'] } as const;
    for (const asked of [undefined, null, { strength: 'none' }, other])
      expect((await exec(owner, asked)).status).toBe(200);
    expect(guest.starts.map((spec) => spec.view)).toEqual([shop, shop, undefined, other]);
    guest.starts.length = 0;
    expect(await start(owner)).toBe('ok');
    expect(await start(owner, { view: { strength: 'none' } })).toBe('ok');
    const message = { hide: ['/a'], readonly: ['/b'], privateTmp: true, network: 'none' };
    expect(await start(owner, { view: message })).toBe('ok');
    expect(guest.starts.map((spec) => spec.view)).toEqual([
      shop,
      undefined,
      { strength: 'sealed', ...message },
    ]);
  });

  it('without a default view acts outside, unless a view is asked for', async () => {
    view = undefined;
    sandbox = makeSandbox();
    await exec(owner);
    await exec(owner, { hide: ['/a'] });
    await start(owner);
    expect(guest.starts.map((spec) => spec.view)).toEqual([
      undefined,
      { strength: 'sealed', hide: ['/a'] },
      undefined,
    ]);
  });

  it.each([
    [{ hide: ['srv'] }, 'view.hide.0: Must be: an absolute path'],
    [{ hidden: [] }, 'view.hidden: '],
    ['sealed', 'view: Expected object'],
    [{ strength: 'none', private_tmp: true }, 'view: With strength "none"'],
    [{ network: 'machine' }, 'view.network: '],
  ])('is told what is wrong with %j, and nothing is started', async (asked, detail) => {
    const answer = await exec(owner, asked);
    expect([answer.status, answer.body['error']]).toEqual([422, 'bad_request']);
    expect(answer.body['detail']).toContain(detail);
    expect(guest.starts).toEqual([]);
  });

  it('is told so by the service as well', async () => {
    expect(await start(owner, { view: { hide: ['x'] } })).toBe('InvalidArgument');
    expect(await start(owner, { view: { strength: 'sealde' } })).toBe('InvalidArgument');
    expect(guest.starts).toEqual([]);
  });
});

describe('an agent', () => {
  it('runs commands in the default view, also when it names that', async () => {
    expect((await exec(agent)).status).toBe(200);
    expect((await exec(agent, { hide: ['/srv/shop'] })).status).toBe(200);
    expect(await start(agent)).toBe('ok');
    expect(await start(agent, { sessionUuid: 'mine' })).toBe('ok');
    expect(guest.starts.map((spec) => spec.view)).toEqual([shop, shop, shop, shop]);
  });

  it('is refused every other view, and none', async () => {
    for (const asked of [
      { strength: 'none' },
      {},
      { hide: [] },
      { strength: 'mask', hide: ['/srv/shop'] },
      { hide: ['/srv/shop'], network: 'none' },
    ]) {
      const answer = await exec(agent, asked);
      expect([answer.status, answer.body['error']]).toEqual([403, 'outside_view']);
    }
    expect(await start(agent, { view: { strength: 'none' } })).toBe('PermissionDenied');
    expect(await start(agent, { view: { hide: ['/a'] } })).toBe('PermissionDenied');
    expect(guest.starts).toEqual([]);
  });

  it('has no way to files, which are reached outside of the view', async () => {
    for (const [method, route] of [
      ['POST', 'upload?path=/x'],
      ['GET', 'download?path=/x'],
      ['GET', 'read-file?path=/x'],
      ['GET', 'tar?path=/x'],
      ['PUT', 'tar?path=/x'],
      ['GET', 'stat?path=/x'],
      ['GET', 'what-comes-later'],
    ] as const)
      expect((await rest(agent, method, route)).status, route).toBe(403);
    expect((await rest(owner, 'GET', 'stat?path=/x')).status).toBe(200);
  });

  it('is refused all where the sandbox has no view after all', async () => {
    view = undefined;
    sandbox = makeSandbox();
    expect((await exec(agent)).status).toBe(403);
    expect(await start(agent)).toBe('PermissionDenied');
    expect(guest.starts).toEqual([]);
  });

  it('reaches sessions of the view, whoever began them, and no others', async () => {
    await start(owner, { sessionUuid: 'inside' });
    await start(owner, { sessionUuid: 'outside', view: { strength: 'none' } });
    await start(owner, { sessionUuid: 'elsewhere', view: { strength: 'mask', hide: ['/opt'] } });
    guest.execs.push({ id: 'start-command', pid: 7, argv: ['shop'], session: false });
    const client = service(agent);
    expect((await client.list({})).sessions.map((one) => one.sessionUuid)).toEqual(['inside']);
    expect((await service(owner).list({})).sessions).toHaveLength(4);
    const pidOf = (id: string) => guest.execs.find((info) => info.id === id)?.pid ?? 0;
    const data = { input: { input: { case: 'stdin' as const, value: new Uint8Array(1) } } };
    for (const id of ['outside', 'elsewhere', 'start-command', 'unknown']) {
      for (const target of [bySession(id), byPid(pidOf(id))]) {
        expect(await codeOf(client.sendSignal({ ...target, signal: 9 })), id).toBe('NotFound');
        expect(await codeOf(client.sendInput({ ...target, ...data })), id).toBe('NotFound');
        expect(await codeOf(client.update({ ...target, pty: { size: { cols: 1, rows: 1 } } }))).toBe(
          'NotFound',
        );
        const attached = (async () => {
          for await (const _ of client.connect(target));
        })();
        expect(await codeOf(attached), id).toBe('NotFound');
      }
      expect((await rest(agent, 'POST', `received?session=${id}`)).status).toBe(404);
    }
    expect([guest.signals, guest.inputs]).toEqual([[], []]);
    for (const target of [bySession('inside'), byPid(pidOf('inside'))]) {
      await client.sendSignal({ ...target, signal: 15 });
      await client.sendInput({ ...target, ...data });
    }
    expect([guest.signals, guest.inputs]).toEqual([
      ['inside', 'inside'],
      ['inside', 'inside'],
    ]);
    expect((await rest(agent, 'POST', 'received?session=inside')).status).toBe(200);
  });

  it('cannot attach by a start with the name of a session outside', async () => {
    await start(owner, { sessionUuid: 'outside', view: { strength: 'none' } });
    await start(owner, { sessionUuid: 'elsewhere', view: { strength: 'mask' } });
    guest.starts.length = 0;
    expect(await start(agent, { sessionUuid: 'outside' })).toBe('PermissionDenied');
    expect(await start(agent, { sessionUuid: 'elsewhere' })).toBe('PermissionDenied');
    expect(guest.starts).toEqual([]);
  });

  it('cannot do so either while that session is only being started', async () => {
    let open = () => {};
    const { exec: begin } = guest;
    guest.exec = async (spec) => {
      if (!spec.view) await new Promise<void>((resolve) => (open = resolve));
      return begin(spec);
    };
    const outside = start(owner, { sessionUuid: 'outside', view: { strength: 'none' } });
    await expect.poll(() => sandbox.views.startsOutside('outside')).toBe(true);
    expect(await start(agent, { sessionUuid: 'outside' })).toBe('PermissionDenied');
    open();
    expect(await outside).toBe('ok');
    expect(sandbox.views.startsOutside('outside')).toBe(false);
    expect(guest.starts.map((spec) => spec.view)).toEqual([undefined]);
  });

  it('reaches a command without session as long as it streams', async () => {
    let finish = () => {};
    guest.held = new Promise((resolve) => (finish = resolve));
    const running = [start(agent), start(owner), start(owner, { view: { strength: 'none' } })];
    await expect.poll(async () => (await service(agent).list({})).sessions.length).toBe(2);
    expect((await service(owner).list({})).sessions).toHaveLength(3);
    finish();
    expect(await Promise.all(running)).toEqual(['ok', 'ok', 'ok']);
    expect((await service(agent).list({})).sessions).toEqual([]);
  });

  it('after a restart of the node agent reaches the sessions of the view, and only those', async () => {
    await start(owner, { sessionUuid: 'inside' });
    await start(owner, { sessionUuid: 'outside', view: { strength: 'none' } });
    await start(owner, { sessionUuid: 'elsewhere', view: { strength: 'mask' } });
    await start(owner, { view: { strength: 'mask' } });
    // Before the session began.
    expect(saved).toEqual([['elsewhere']]);
    sandbox = makeSandbox(saved.at(-1));
    expect((await service(agent).list({})).sessions.map((one) => one.sessionUuid)).toEqual(['inside']);
  });
});

it('ids of sessions that the guest has forgotten are not kept for ever', async () => {
  const ids = Array.from({ length: 2_000 }, (_, at) => `old-${at}`);
  sandbox = makeSandbox(ids);
  guest.execs.push({ id: 'old-7', pid: 9, argv: [], session: true, view: true });
  await start(owner, { sessionUuid: 'new', view: { strength: 'mask' } });
  expect(saved).toEqual([['old-7', 'new']]);
});

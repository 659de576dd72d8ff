/**
 * What forks, pauses, rollbacks and a restart of the host do to connections and policies: those of a copy die inside of it, also where a
 * program only reads; those of the source, and those within the machine, go on; names stay admitted, and nothing else is.
 */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { createFrom, makeCheckpoint, removeCheckpoint, rollBack } from '../driver/checkpoints.js';
import { OutsideWorld, outside } from '../driver/outside-world.js';
import { pauseSandbox, rebootHost, resumeSandbox } from '../driver/pauses.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

vi.setConfig({ testTimeout: 300_000 });

const echoPort = 9007;
let node: TestNode;
let world: OutsideWorld;

beforeAll(async () => {
  node = await TestNode.start({
    prepare: async (namespace) => {
      world = await OutsideWorld.open(namespace);
      await world.echo(echoPort);
    },
  });
});
afterAll(async () => {
  world?.close();
  await node?.close();
});

/** Holds connections, and writes what becomes of each to /dev/shm. Moves on when a file is there. */
const holder = `
import os, socket, threading, time
def note(name, text):
    with open('/dev/shm/' + name, 'w') as file: file.write(text)
def read(name, s):
    def work():
        try: text = repr(s.recv(100))
        except OSError as error: text = type(error).__name__
        note(name, text)
    threading.Thread(target=work, daemon=True).start()
def wait(name):
    while not os.path.exists('/dev/shm/' + name): time.sleep(0.05)
here = ('${outside.name}', ${echoPort})
talk = socket.create_connection(here)
plain = socket.create_connection(here)
mapped = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
mapped.connect(('::ffff:${outside.address}', ${echoPort}))
listener = socket.create_server(('127.0.0.1', 8080))
near = socket.create_connection(('127.0.0.1', 8080))
far = listener.accept()[0]
read('plain', plain); read('mapped', mapped); read('near', near)
note('ready', 'yes')
wait('go')
far.sendall(b'near')
try:
    talk.sendall(b'spoken'); talk.shutdown(socket.SHUT_WR)
    note('talk', repr(talk.recv(100)))
except OSError as error: note('talk', type(error).__name__)
wait('never')
`;

const egress = { generation: 1, allowlist: [outside.name], denylist: null };

async function hold(): Promise<TestSandbox> {
  const sandbox = await node.create({ egress, tokensFrom: 1 });
  await sandbox.files.uploadStream(Buffer.from(holder), '/root/holder.py');
  await sandbox.out('python3 /root/holder.py >/root/holder.log 2>&1 &');
  await sandbox.until('it holds connections', async () => (await said(sandbox, 'ready')) === 'yes', 60_000);
  return sandbox;
}

/** What the holder has written, "" if nothing. */
const said = (sandbox: TestSandbox, name: string) => sandbox.out(`cat /dev/shm/${name} 2>/dev/null || true`);

async function untilSaid(sandbox: TestSandbox, name: string, text: string): Promise<void> {
  let seen = '';
  const isSaid = async () => {
    seen = await said(sandbox, name);
    return seen === text;
  };
  await sandbox.until(name, isSaid, 60_000).catch(async (cause: Error) => {
    throw new Error(`${name} says "${seen}", not "${text}": ${await sandbox.out('cat /root/holder.log')}`, {
      cause,
    });
  });
}

/** Whether an address and port outside can be connected to, without asking for a name. */
function reach(sandbox: TestSandbox, address: string, port = echoPort): Promise<string> {
  return sandbox.python(`import socket
try:
    socket.create_connection(('${address}', ${port}), timeout=10).close(); print('reached')
except OSError as error: print('refused')`);
}

it('in a copy connections end, also for who only reads; in the source, and within the copy, they go on', async () => {
  const source = await hold();
  const [copy] = (await node.requestFork(source, 1, { egress, tokensFrom: 1 })) as [TestSandbox];
  expect((await copy.untilState('running', 'failed')).state).toBe('running');
  // At once: they were aborted before its first answer.
  await untilSaid(copy, 'plain', 'ConnectionAbortedError');
  await untilSaid(copy, 'mapped', 'ConnectionAbortedError');
  await copy.out('touch /dev/shm/go');
  await untilSaid(copy, 'near', "b'near'");
  expect(await said(copy, 'talk')).toMatch(/Error$/);
  expect([await said(source, 'plain'), await said(source, 'mapped')]).toEqual(['', '']);
  await source.out('touch /dev/shm/go');
  await untilSaid(source, 'talk', "b'spoken'");
  // What a name meant in the source may be reached in the copy, and nothing else.
  expect(await reach(copy, outside.address)).toBe('reached');
  expect(await reach(copy, '203.0.113.254', 80)).toBe('refused');
  await copy.delete();
  await source.delete();
});

it('a pause keeps connections, names and policy', async () => {
  const sandbox = await hold();
  await pauseSandbox(node, sandbox);
  await resumeSandbox(node, sandbox);
  await sandbox.untilState('running');
  await sandbox.out('touch /dev/shm/go');
  await untilSaid(sandbox, 'talk', "b'spoken'");
  expect([await said(sandbox, 'plain'), await said(sandbox, 'mapped')]).toEqual(['', '']);
  expect(await reach(sandbox, outside.address)).toBe('reached');
  expect(await reach(sandbox, '203.0.113.254', 80)).toBe('refused');
  await sandbox.delete();
});

it('after a rollback connections of before end, those within go on, names and policy are in force', async () => {
  const sandbox = await hold();
  const { id } = await makeCheckpoint(node, sandbox, true);
  for (const memory of [true, true, false]) {
    await rollBack(node, sandbox, id, memory);
    const { state, message } = await sandbox.untilState('running', 'failed');
    expect(state, message).toBe('running');
    expect(await reach(sandbox, outside.address)).toBe('reached');
    expect(await reach(sandbox, outside.name)).toBe('reached');
    expect(await reach(sandbox, '203.0.113.254', 80)).toBe('refused');
    if (!memory) continue;
    await untilSaid(sandbox, 'plain', 'ConnectionAbortedError');
    await untilSaid(sandbox, 'mapped', 'ConnectionAbortedError');
    await sandbox.out('touch /dev/shm/go');
    await untilSaid(sandbox, 'near', "b'near'");
    expect(await said(sandbox, 'talk')).toMatch(/Error$/);
  }
  // A policy that was changed since is that of the sandbox, not of the checkpoint.
  await node.ask('PUT', `/v1/sandboxes/${sandbox.id}/egress-policy`, {
    generation: 2,
    allowlist: [],
    denylist: null,
  });
  await rollBack(node, sandbox, id, true);
  expect((await sandbox.untilState('running', 'failed')).state).toBe('running');
  expect(await reach(sandbox, outside.address)).toBe('refused');
  // In another sandbox a name has to be resolved again, and its connections end as well.
  const child = await createFrom(node, id, true, { egress, tokensFrom: 1 });
  await untilSaid(child, 'plain', 'ConnectionAbortedError');
  expect(await reach(child, outside.name)).toBe('reached');
  expect(await reach(child, '203.0.113.254', 80)).toBe('refused');
  await child.delete();
  await sandbox.delete();
  await removeCheckpoint(node, id);
});

it('a restart of the host keeps what is paused, and ends what runs; connections of before end, the policy holds', async () => {
  const sandbox = await hold();
  const running = await node.create();
  await pauseSandbox(node, sandbox);
  await rebootHost(node);
  expect(await running.untilState('failed', 'running')).toMatchObject({
    state: 'failed',
    reason: 'MACHINE_ENDED',
  });
  await running.delete();
  expect((await sandbox.report()).state).toBe('paused');
  await resumeSandbox(node, sandbox);
  await sandbox.untilState('running', 'paused', 'failed');
  await untilSaid(sandbox, 'plain', 'ConnectionAbortedError');
  await sandbox.out('touch /dev/shm/go');
  await untilSaid(sandbox, 'near', "b'near'");
  expect(await reach(sandbox, outside.name)).toBe('reached');
  expect(await reach(sandbox, '203.0.113.254', 80)).toBe('refused');
  // Once more, in the network that it has by now.
  await pauseSandbox(node, sandbox);
  await resumeSandbox(node, sandbox);
  await sandbox.untilState('running');
  expect(await reach(sandbox, outside.address)).toBe('reached');
  await sandbox.delete();
});

/** A machine's network as programs meet it: policies from the first packet on, datagrams in fragments, a narrow link on the way. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OutsideWorld, outside } from '../driver/outside-world.js';
import { TestNode, type TestSpec } from '../driver/test-node.js';

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

const echoPort = 9007;

/** Tries everything that leads out and says how each try ended, and after how long. */
const tryProgram = `
import socket, time
def attempt(name, work):
    begun = time.monotonic()
    try: outcome = work()
    except OSError as error: outcome = type(error).__name__
    print(name, outcome, 'slow' if time.monotonic() - begun > 4 else 'fast', flush=True)
def tcp(host, port):
    socket.create_connection((host, port), timeout=15).close()
    return 'reached'
def udp(host, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(15); s.connect((host, port))
    for n in range(2): s.send(b'hello')
    return 'reached' if s.recv(100) else 'empty'
attempt('tcp', lambda: tcp('${outside.address}', 80))
attempt('name', lambda: tcp('${outside.name}', 80))
attempt('udp', lambda: udp('${outside.address}', ${echoPort}))
attempt('resolver', lambda: socket.gethostbyname('${outside.name}'))
attempt('localhost', lambda: socket.gethostbyname('localhost'))
`;

/** The same tries in the start command, which begins before anybody could have set a policy later. */
async function triesOf(spec: TestSpec): Promise<Map<string, string>> {
  const sandbox = await node.create({ ...spec, startCommand: { argv: ['python3', '-c', tryProgram] } });
  await sandbox.until('it has ended', async () => (await sandbox.report()).exitCode === 0, 90_000);
  const lines = (await sandbox.logs()).trim().split('\n');
  await sandbox.delete();
  return new Map(lines.map((line) => [line.split(' ')[0] ?? '', line.slice(line.indexOf(' ') + 1)]));
}

describe('a policy', () => {
  it('of nothing: every way out fails fast, names too, and nothing leaks', async () => {
    const seen = await triesOf({ egress: { generation: 0, allowlist: [], denylist: null } });
    for (const way of ['tcp', 'name', 'udp', 'resolver']) {
      expect([way, seen.get(way)]).not.toContain('reached');
      expect([way, seen.get(way)?.split(' ')[1]]).toEqual([way, 'fast']);
    }
    expect(seen.get('localhost')).toBe('127.0.0.1 fast');
  });

  it('that denies one address and one name: those fail fast, the rest goes on', async () => {
    const seen = await triesOf({
      egress: { generation: 0, allowlist: null, denylist: [`${outside.address}:80`] },
    });
    expect(seen.get('tcp')).toMatch(/^(?!reached).* fast$/);
    expect(seen.get('udp')).toBe('reached fast');
    expect(seen.get('resolver')).toBe(`${outside.address} fast`);
  });

  it('of everything: all ways lead out', async () => {
    const seen = await triesOf({});
    expect([seen.get('tcp'), seen.get('name'), seen.get('udp')]).toEqual(Array(3).fill('reached fast'));
  });
});

describe('packets', () => {
  it('datagrams that need fragments come and go whole', async () => {
    const sandbox = await node.create();
    const program = `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('${outside.address}', ${echoPort}))
for size in (1472, 1473, 4000, 8192, 20000, 60000):
    data = bytes(n * 7 % 251 for n in range(size))
    for tries in range(3):
        s.send(data)
        try: back = s.recv(65536)
        except TimeoutError: continue
        break
    assert back == data, (size, len(back))
    print(size)
`;
    expect(await sandbox.python(program, { timeoutMs: 100_000 })).toBe(
      '1472\n1473\n4000\n8192\n20000\n60000',
    );
    await sandbox.delete();
  });

  it('a link on the way that is narrower than the guest’s is found out, both ways', async () => {
    world.narrow(1300);
    const sandbox = await node.create();
    const program = `
import socket
s = socket.create_connection(('${outside.address}', ${echoPort}), timeout=40)
data = bytes(range(256)) * 1200
s.sendall(data); s.shutdown(socket.SHUT_WR)
back = b''
while part := s.recv(65536): back += part
assert back == data, len(back)
print(len(back))
`;
    expect(await sandbox.python(program, { timeoutMs: 100_000 })).toBe(String(256 * 1200));
    await sandbox.delete();
    world.narrow(1500);
  });
});

/** A sandbox is a machine: own kernel, identity, clock, devices, disk, modules, network from inside. */

import { execFileSync, spawn } from 'node:child_process';
import { release } from 'node:os';
import {
  listNetworkProbes,
  type NetworkProbeResult,
  networkProbeScript,
} from '@sandlot/node-agent/network/network-probes';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { namespacesOf } from '../driver/leftovers.js';
import { nodeUplink, OutsideWorld, outside } from '../driver/outside-world.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

let node: TestNode;
let one: TestSandbox;
let two: TestSandbox;
let world: OutsideWorld;

/** Fetches a page by name and by address. */
const fetchProgram = `
import urllib.request
for host in ('${outside.name}', '${outside.address}'):
    print(urllib.request.urlopen('http://' + host, timeout=20).read().decode(), flush=True)
`;

beforeAll(async () => {
  node = await TestNode.start({
    prepare: async (namespace) => {
      world = await OutsideWorld.open(namespace);
    },
  });
  one = await node.create({ hostname: 'first', diskBytes: 5 * 2 ** 30 });
  two = await node.create({ hostname: 'second' });
});
afterAll(async () => {
  // First: its uplink would be found in the node's namespace.
  world?.close();
  await node?.close();
});

/** Addresses in the output of `ip -o addr`; the loopback's and the one that every guest has inside are left out. */
function addressesIn(text: string): string[] {
  return [...text.matchAll(/inet (\d+\.\d+\.\d+\.\d+)[/ ]/g)]
    .map((match) => match[1] as string)
    .filter((address) => !address.startsWith('127.') && !address.startsWith('10.0.2.'));
}

/** Images need not have mount(8): the call of the C library, in Python. */
const mountFunction = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def mount(kind, target, options):
    if libc.mount(b'none', target.encode(), kind.encode(), 0, options.encode()): raise OSError(ctypes.get_errno(), 'mount ' + kind)
`;

describe('the machine', () => {
  it('has the right clock at its first command', async () => {
    const seconds = Number(await two.out('date +%s.%N'));
    expect(Math.abs(seconds - Date.now() / 1000)).toBeLessThan(3);
  });

  it('has a kernel of its own', async () => {
    expect(await one.out('uname -r')).not.toBe(release());
    expect(await one.out('nproc')).toBe('1');
    const kib = Number(await one.out("awk '/MemTotal/ {print $2}' /proc/meminfo"));
    expect(kib).toBeGreaterThan(420 * 1024);
    expect(kib).toBeLessThan(512 * 1024);
  });

  it('has an identity of its own, and no entropy in common with its sister', async () => {
    const ask = 'cat /etc/machine-id /proc/sys/kernel/random/boot_id; head -c 32 /dev/urandom | od -An -tx1';
    const [a, b] = [(await one.out(ask)).split('\n'), (await two.out(ask)).split('\n')];
    expect(a[0]).toMatch(/^[0-9a-f]{32}$/);
    expect(a[0]).not.toBe(b[0]);
    expect(a.slice(2)).not.toEqual(b.slice(2));
    expect(await one.out('hostname')).toBe('first');
    expect(await two.out('hostname')).toBe('second');
    expect(await one.python('import socket; print(socket.gethostbyname(socket.gethostname()))')).toMatch(
      /^\d+\./,
    );
  });

  it('has the disk that was asked for', async () => {
    const gib = Number(await one.out('df -B1 --output=size / | tail -1')) / 2 ** 30;
    expect(gib).toBeGreaterThan(4.5);
    expect(gib).toBeLessThanOrEqual(5);
    expect(await one.out('stat -f -c %T /')).toBe('ext2/ext3');
  });

  it('has terminals, shared memory, a loopback, and what else programs look for', async () => {
    await one.python(`
import os, pty, socket, tempfile, multiprocessing
master, slave = pty.openpty(); assert os.ttyname(slave).startswith('/dev/pts/')
assert os.statvfs('/dev/shm').f_bsize and multiprocessing.Lock()
s = socket.create_server(('localhost', 0)); c = socket.create_connection(s.getsockname()[:2])
for path in ('/dev/null', '/dev/zero', '/dev/random', '/dev/full', '/dev/tty', '/dev/ptmx', '/dev/fd/0', '/proc/self/fd', '/sys/fs/cgroup/cgroup.controllers', '/sys/class/net/eth0'):
    assert os.path.lexists(path), path
fd = os.open('/root', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'x')
os.mkfifo('/root/fifo'); os.link('/etc/passwd', '/root/linked')
assert os.stat('/tmp').st_mode & 0o7777 == 0o1777, oct(os.stat('/tmp').st_mode)
`);
  });

  it('loads kernel modules on demand', async () => {
    // The tun device and FUSE are modules of the kernel; opening or mounting them asks for the module.
    await one.python(`
import fcntl, os, struct
fd = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(fd, 0x400454ca, struct.pack('16sH14x', b'tap9', 0x1002))
assert os.path.exists('/sys/class/net/tap9')
`);
    await one.python(`${mountFunction}
for name in 'lumw': os.makedirs('/o/' + name)
mount('overlay', '/o/m', 'lowerdir=/o/l,upperdir=/o/u,workdir=/o/w')
`);
  });

  it('reaps every orphan', async () => {
    await one.out('for n in 1 2 3 4 5; do (setsid sh -c "sleep 0.2" &) ; done; sleep 1');
    const zombies = `awk '$3 == "Z"' /proc/[0-9]*/stat 2>/dev/null | wc -l`;
    await one.until('no zombie is left', async () => (await one.out(zombies)) === '0');
  });

  it('lets root mount, and a command be another user', async () => {
    expect(await one.out('id -u')).toBe('0');
    expect(await one.out('id -un', { user: 'nobody' })).toBe('nobody');
    expect(await one.out('id -u; id -g', { user: '1234:4321' })).toBe('1234\n4321');
    await one.python(`${mountFunction}
mount('tmpfs', '/mnt', 'size=1m')`);
  });
});

describe('the network', () => {
  it('is configured from the first command', async () => {
    expect(await two.out('cat /etc/resolv.conf')).toContain('nameserver 10.0.2.3');
    const route = await two.out('awk \'$2 == "00000000" {print $1, $3}\' /proc/net/route');
    expect(route).toBe('eth0 0202000A');
  });

  it('reaches the world by name and by address, from the start command on', async () => {
    const seen = `outside sees ${nodeUplink}`;
    const sandbox = await node.create({ startCommand: { argv: ['python3', '-c', fetchProgram] } });
    await sandbox.until(
      'the start command has ended',
      async () => (await sandbox.report()).exitCode !== undefined,
    );
    expect(await sandbox.logs()).toBe(`${seen}\n${seen}\n`);
    const unknown = "import socket; socket.gethostbyname('no.such.name.test')";
    expect((await sandbox.run(['python3', '-c', unknown])).stderr).toContain('gaierror');
    await sandbox.delete();
  });

  it('reaches nothing of the host, of other sandboxes, or of metadata', async () => {
    const ofHost = addressesIn(node.namespace.run(['ip', '-4', '-o', 'addr', 'show']));
    const ofSandboxes = namespacesOf(node.instanceId).flatMap((name) =>
      addressesIn(execFileSync('ip', ['-n', name, '-4', '-o', 'addr', 'show'], { encoding: 'utf8' })),
    );
    expect(ofSandboxes.length).toBeGreaterThan(1);
    const server = node.namespace.command([
      'python3',
      '-c',
      "import socket,sys\ns=socket.create_server(('0.0.0.0',8099))\nprint('ready',flush=True)\nwhile True:\n c,_=s.accept(); c.send(b'HOST\\n'); c.close()",
    ]);
    const listener = spawn(...server, { stdio: ['ignore', 'pipe', 'inherit'] });
    try {
      await new Promise((resolve) => listener.stdout.once('data', resolve));
      const probes = listNetworkProbes({
        node: ofHost,
        otherSandboxes: ofSandboxes,
        own: [],
        privateHosts: ['10.9.9.9', '192.168.1.1'],
        ports: [8099],
      });
      expect(probes.length).toBeGreaterThan(8);
      const result = await one.run(['python3', '-c', networkProbeScript], { stdin: JSON.stringify(probes) });
      const results = JSON.parse(result.stdout) as NetworkProbeResult[];
      expect(results).toHaveLength(probes.length);
      expect(results.filter(({ reached }) => reached)).toEqual([]);
    } finally {
      listener.kill('SIGKILL');
    }
  });
});

/** Roots that are unlike Debian's: next to nothing in them, everything under /nix, no /etc, odd resolver files; and name lookup with both C libraries. */
import { buildTar, type FixtureEntry } from '@sandlot/images/testing/tar-fixture';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OutsideWorld, outside } from '../driver/outside-world.js';
import {
  busyboxEntries,
  hostProgramEntries,
  imageArchive,
  layeredArchive,
  staticProgram,
  tellingProgram,
} from '../driver/test-images.js';
import { TestNode } from '../driver/test-node.js';

/** Looks its arguments up as any program does, and prints `name address`. */
const lookupProgram = `
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    struct addrinfo wanted = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
    int error = getaddrinfo(argv[i], 0, &wanted, &found);
    char text[64] = "";
    if (!error) inet_ntop(AF_INET, &((struct sockaddr_in *)found->ai_addr)->sin_addr, text, sizeof text);
    printf("%s %s\\n", argv[i], error ? gai_strerror(error) : text);
  }
}
`;

let node: TestNode;
let world: OutsideWorld;
let tell: Buffer;

beforeAll(async () => {
  node = await TestNode.start({
    withPython: false,
    prepare: async (namespace) => {
      world = await OutsideWorld.open(namespace);
    },
  });
  tell = staticProgram(tellingProgram);
});
afterAll(async () => {
  world?.close();
  await node?.close();
});

const link = (name: string, linkName: string): FixtureEntry => ({ name, type: 'symlink', linkName });

/** Prime's exec, which asks for a shell by its usual place. */
async function primeExec(id: string, command: string): Promise<unknown> {
  const answer = await fetch(`${node.bridge.url}/gw/test/${id}/exec`, {
    method: 'POST',
    headers: { authorization: `Bearer ${node.bridge.token(id, 1)}`, 'content-type': 'application/json' },
    body: JSON.stringify({ command }),
  });
  return answer.json();
}

describe('a tree as Nix makes it: each package in a layer of its own, nothing in the usual places', () => {
  it('runs by its ENV, has what a machine has, and a shell that is only on its PATH', async () => {
    const store = (n: number) => `nix/store/${String(n).padStart(32, '0')}-package-${n}`;
    const layers = [...Array(70).keys()].map((n): FixtureEntry[] => [
      { name: `${store(n)}/`, type: 'dir', mode: 0o555 },
      { name: `${store(n)}/share/number`, content: `${n}`, mode: 0o444 },
    ]);
    layers[69]?.push(...busyboxEntries(`${store(69)}/bin`));
    const config = {
      Env: [`PATH=/nix/var/profile/bin:/${store(69)}/bin`, 'USER=root', 'NIX_PATH=/nix/path'],
      Cmd: ['sh', '-c', 'echo started by $0 as $USER'],
    };
    const archive = await layeredArchive(
      layers.map((entries) => ({ tar: buildTar(entries) })),
      { config },
    );
    await node.importArchive(archive, 'nix:1');
    const sandbox = await node.create({ image: 'nix:1', startCommand: { entrypoint: true } });
    await sandbox.until('it has started', async () => (await sandbox.report()).exitCode === 0);
    expect(await sandbox.logs()).toBe('started by sh as root\n');
    const sh = async (line: string) => (await sandbox.run(['sh', '-c', line])).stdout;
    expect(await sh('find /nix/store -name number | wc -l; cat /nix/store/*-69/share/number')).toBe('70\n69');
    expect(await sh('ls -d /bin /usr 2>/dev/null; ls -d /dev/null /proc/1 /sys/kernel /etc/hosts')).toBe(
      '/dev/null\n/etc/hosts\n/proc/1\n/sys/kernel\n',
    );
    expect(
      await sh('echo x > /dev/null && grep -c . /proc/mounts > /made; ls -d /made /tmp 2>/dev/null'),
    ).toBe('/made\n');
    // Whoever asks for /bin/bash -c gets the shell that there is.
    expect(await primeExec(sandbox.id, 'echo $NIX_PATH; exit 3')).toEqual({
      stdout: '/nix/path\n',
      stderr: '',
      exit_code: 3,
    });
    await sandbox.files.uploadStream(Buffer.from('up'), '/nix/var/new/file');
    expect(await sh('cat /nix/var/new/file')).toBe('up');
    expect((await sandbox.report()).message ?? '').not.toContain('shell');
    await sandbox.delete();
  });
});

describe('an image of one static program', () => {
  it('has the machine’s folders and files, and says that it has no shell', async () => {
    await node.importArchive(await imageArchive([{ name: 'tell', content: tell, mode: 0o755 }]), 'one:1');
    const sandbox = await node.create({ image: 'one:1', startCommand: { argv: ['/tell', '--exit', '0'] } });
    await sandbox.until('it has ended', async () => (await sandbox.report()).exitCode === 0);
    expect((await sandbox.files.readFile('/etc/hosts')).content).toContain('127.0.0.1\tlocalhost');
    expect((await sandbox.files.readFile('/etc/resolv.conf')).content).toContain('nameserver 10.0.2.3');
    expect((await sandbox.files.readFile('/etc/hostname')).content).toBe(`${sandbox.id}\n`);
    expect(await primeExec(sandbox.id, 'true')).toMatchObject({ exit_code: 127 });
    await sandbox.delete();
  });
});

describe('name lookup', () => {
  const stub = 'nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch lan\n';
  /** What images have in the place of the resolver's file. */
  const resolvers: [string, FixtureEntry[]][] = [
    ['no /etc at all', []],
    ['a stub resolver of the host that built it', [{ name: 'etc/resolv.conf', content: stub }]],
    ['an empty file', [{ name: 'etc/resolv.conf', content: '' }]],
    ['a dangling link', [link('etc/resolv.conf', '/run/systemd/resolve/stub-resolv.conf')]],
    ['a dangling relative link', [link('etc/resolv.conf', '../run/connman/resolv.conf')]],
    [
      'a link to a stub resolver',
      [
        link('etc/resolv.conf', '../run/systemd/resolve/stub-resolv.conf'),
        { name: 'run/systemd/resolve/stub-resolv.conf', content: stub },
      ],
    ],
    ['a link to itself', [link('etc/resolv.conf', 'resolv.conf')]],
    ['hosts that is a dangling link', [link('etc/hosts', '/run/hosts')]],
  ];

  it.each(resolvers)('%s: musl, glibc and busybox find names, and localhost', async (what, entries) => {
    const name = `resolver:${resolvers.findIndex(([one]) => one === what)}`;
    const image = [
      ...busyboxEntries(),
      ...hostProgramEntries('/usr/bin/getent'),
      { name: 'bin/lookup', content: staticProgram(lookupProgram, 'musl-gcc'), mode: 0o755 },
      ...entries,
    ];
    await node.importArchive(await imageArchive(image), name);
    const sandbox = await node.create({ image: name });
    const { stdout, stderr } = await sandbox.run(['lookup', 'localhost', outside.name, sandbox.id]);
    expect(stdout + stderr).toBe(
      `localhost 127.0.0.1\n${outside.name} ${outside.address}\n${sandbox.id} 10.0.2.15\n`,
    );
    expect(await sandbox.out(`getent ahostsv4 localhost | head -1 | tr -s ' '`)).toBe(
      '127.0.0.1 STREAM localhost',
    );
    expect(await sandbox.out(`getent hosts ${outside.name} | tr -s ' '`)).toBe(
      `${outside.address} ${outside.name}`,
    );
    expect(await sandbox.out(`wget -q -O - http://${outside.name}/`)).toContain('outside sees');
    // A name that does not exist is told at once, not after the resolver's timeouts.
    const begun = performance.now();
    expect((await sandbox.sh('getent hosts no.such.name.test')).exitCode).toBe(2);
    expect(performance.now() - begun).toBeLessThan(5_000);
    await sandbox.delete();
  });
});

/** Files that only a whole tar reader and a real file system keep: rights, owners, long and strange names, holes, planted links. */
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { buildTar, type FixtureEntry } from '@sandlot/images/testing/tar-fixture';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  accountEntries,
  busyboxEntries,
  layeredArchive,
  staticProgram,
  tellingProgram,
} from '../driver/test-images.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

/** One echo request to the loopback by a raw socket, as ping without any help of the kernel's. */
const pingProgram = `
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip_icmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
int main(void) {
  int s = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
  if (s < 0) { printf("no socket: %s\\n", strerror(errno)); return 2; }
  struct timeval wait = { .tv_sec = 10 };
  setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  struct icmphdr echo = { .type = ICMP_ECHO };
  echo.un.echo.id = htons(getpid() & 0xffff);
  unsigned sum = ICMP_ECHO + echo.un.echo.id;
  echo.checksum = ~((sum & 0xffff) + (sum >> 16));
  if (sendto(s, &echo, sizeof echo, 0, (void *)&to, sizeof to) < 0) { perror("send"); return 3; }
  for (;;) {
    unsigned char in[200];
    ssize_t got = recv(s, in, sizeof in, 0);
    if (got < 0) { perror("recv"); return 4; }
    struct icmphdr *answer = (void *)(in + (in[0] & 15) * 4);
    if (answer->type == ICMP_ECHOREPLY && answer->un.echo.id == echo.un.echo.id) { puts("answered"); return 0; }
  }
}
`;

/** `vfs_cap_data` of version 2: CAP_NET_RAW (13) permitted and effective. linux/capability.h. */
const netRaw = Buffer.from('0100000200200000000000000000000000000000', 'hex');

let node: TestNode;
let sandbox: TestSandbox;
/** A folder of this host that links of the image point to. */
let hostFolder: string;

const deep = `${'d'.repeat(60)}/`.repeat(5);
const longName = 'n'.repeat(255);
const link = (name: string, linkName: string): FixtureEntry => ({ name, type: 'symlink', linkName });

beforeAll(async () => {
  hostFolder = mkdtempSync('/tmp/slt-planted-');
  node = await TestNode.start({ withPython: false });
  const ping = staticProgram(pingProgram);
  const tell = staticProgram(tellingProgram);
  const base = [...busyboxEntries(), ...accountEntries()];
  const upper: FixtureEntry[] = [
    { name: 'bin/ping-capable', content: ping, mode: 0o755, xattrs: { 'security.capability': netRaw } },
    { name: 'bin/ping-plain', content: ping, mode: 0o755 },
    { name: 'bin/tell-setuid', content: idProgram(), mode: 0o4755 },
    { name: 'bin/tell-setgid', content: idProgram(), mode: 0o2755, gid: 2000 },
    { name: 'bin/tell', content: tell, mode: 0o755 },
    { name: `${deep}file`, content: 'deep' },
    { name: `long/${longName}`, content: 'long' },
    { name: 'long/link', type: 'symlink', linkName: `/${deep}file` },
    { name: 'long/far', type: 'symlink', linkName: `${'./'.repeat(1500)}file` },
    // Bytes that are not UTF-8, one that is broken UTF-8, and what shells and terminals stumble over.
    { name: 'names/caf\xe9', content: 'latin' },
    { name: 'names/\xff\xfe', content: 'bytes' },
    { name: 'names/\xe2\x82', content: 'half' },
    { name: 'names/new\nline', content: 'line' },
    { name: 'names/-rf *', content: 'dash' },
    { name: 'names/\x01tab\t"quote\'', content: 'control' },
    { name: 'owners/high', content: 'x', uid: 3_000_000, gid: 4_000_000 },
    { name: 'owners/highest', content: 'x', uid: 4_294_967_294, gid: 4_294_967_294 },
    { name: 'owners/dir', type: 'dir', uid: 70_000, gid: 70_001, mode: 0o2770 },
    { name: 'special/fifo', type: 'fifo', mode: 0o620, uid: 1000, gid: 5 },
    { name: 'special/null', type: 'char', deviceMajor: 1, deviceMinor: 3, mode: 0o666 },
    { name: 'times/old', content: 'x', mtimeSeconds: -86_400 },
    { name: 'times/far', content: 'x', mtimeSeconds: 4_294_967_296 },
    { name: 'sparse/pax', content: sparseMap(), pax: sparsePax() },
    link('planted', hostFolder),
    { name: 'planted/absolute', content: 'planted' },
    link('climbing', `../../../../../../../../..${hostFolder}`),
    { name: 'climbing/dots', content: 'planted' },
    { name: `../../../../../../../../..${hostFolder}/name`, content: 'planted' },
    link('etc/cron.d', '/etc/planted.d'),
  ];
  const top: FixtureEntry[] = [
    { name: 'bin/ping-linked', type: 'hardlink', linkName: 'bin/ping-capable' },
    { name: 'etc/cron.d/job', content: 'planted' },
  ];
  await node.importArchive(
    await layeredArchive(
      [base, upper, top].map((entries) => ({ tar: buildTar(entries), compression: 'gzip' })),
    ),
    'files:1',
  );
  sandbox = await node.create({ image: 'files:1', diskBytes: 3 * 2 ** 30 });
});
afterAll(async () => {
  await node?.close();
  rmSync(hostFolder, { recursive: true, force: true });
});

/** Prints the effective ids alone. */
function idProgram(): Buffer {
  return staticProgram(
    '#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf("%d:%d\\n", geteuid(), getegid()); }',
  );
}

/** A file of 1 GiB with four bytes in its middle, in the form 1.0 of GNU tar: the map, then the data. */
function sparsePax(): [string, string][] {
  return [
    ['GNU.sparse.major', '1'],
    ['GNU.sparse.minor', '0'],
    ['GNU.sparse.name', 'sparse/pax'],
    ['GNU.sparse.realsize', String(2 ** 30)],
  ];
}
function sparseMap(): string {
  return `${`1\n${2 ** 29}\n4\n`.padEnd(512, '\0')}data`;
}

describe('rights', () => {
  it('a file capability works for a user, under a second name too, and is not given to who has none', async () => {
    const asUser = { user: 'app' };
    expect(await sandbox.out('ping-capable', asUser)).toBe('answered');
    expect(await sandbox.out('ping-linked', asUser)).toBe('answered');
    const plain = await sandbox.run(['ping-plain'], asUser);
    expect(plain).toMatchObject({ exitCode: 2, stdout: 'no socket: Operation not permitted\n' });
    expect(await sandbox.out('ping-plain')).toBe('answered');
  });

  it('setuid and setgid programs become who they must', async () => {
    expect(await sandbox.out('tell-setuid; tell-setgid', { user: 'nobody' })).toBe('0:65534\n65534:2000');
    expect(await sandbox.out("stat -c '%a' /bin/tell-setuid /bin/tell-setgid /tmp")).toBe('4755\n2755\n1777');
  });

  it('owners and groups above 16 bits are kept', async () => {
    expect(await sandbox.out("stat -c '%u:%g %a' /owners/high /owners/highest /owners/dir")).toBe(
      '3000000:4000000 644\n4294967294:4294967294 644\n70000:70001 2770',
    );
    await sandbox.out('touch /owners/dir/mine', { user: '70000:70001' });
    expect(await sandbox.out("stat -c '%u:%g' /owners/dir/mine")).toBe('70000:70001');
  });

  it('pipes, devices and times of the image are what they were', async () => {
    expect(await sandbox.out("stat -c '%F %a %u:%g' /special/fifo")).toBe('fifo 620 1000:5');
    expect(
      await sandbox.out("stat -c '%F %t:%T' /special/null; echo lost > /special/null; wc -c < /special/null"),
    ).toBe('character special file 1:3\n0');
    expect(await sandbox.out("stat -c '%Y' /times/old /times/far")).toBe('-86400\n4294967296');
  });
});

describe('names', () => {
  it('of 300 bytes and more, and of 255 in one part', async () => {
    expect(deep.length).toBeGreaterThan(300);
    expect(await sandbox.out(`cat /${deep}file /long/link /long/${longName}`)).toBe('deepdeeplong');
    expect(await sandbox.out('readlink /long/far | wc -c')).toBe(String(3000 + 5));
    expect((await sandbox.files.readFile(`/${deep}file`)).content).toBe('deep');
  });

  it('that are not UTF-8, or that shells stumble over, arrive byte for byte', async () => {
    const found = await sandbox.run(['find', '/names', '-type', 'f', '-print0']);
    const names = Buffer.from(found.stdoutBytes).toString('latin1').split('\0').filter(Boolean).sort();
    expect(names).toEqual(
      ['caf\xe9', '\xff\xfe', '\xe2\x82', 'new\nline', '-rf *', '\x01tab\t"quote\'']
        .map((name) => `/names/${name}`)
        .sort(),
    );
    expect(await sandbox.out('cat /names/caf* /names/-rf* /names/new*')).toBe('latindashline');
  });
});

it('a sparse file has its size and its data, and takes no room', async () => {
  expect(await sandbox.out("stat -c '%s' /sparse/pax")).toBe(String(2 ** 30));
  expect(await sandbox.out(`busybox dd if=/sparse/pax bs=4 skip=${2 ** 27} count=1 2>/dev/null`)).toBe(
    'data',
  );
  expect(parseInt(await sandbox.out('du -k /sparse/pax'), 10)).toBeLessThan(64);
});

it('links that are planted in an image lead nowhere but into the image', async () => {
  expect(existsSync(hostFolder) && readdirSync(hostFolder)).toEqual([]);
  expect(existsSync('/etc/planted.d')).toBe(false);
  expect(await sandbox.out(`cd ${hostFolder} && cat absolute dots name /etc/planted.d/job`)).toBe(
    'planted'.repeat(4),
  );
});

/** Forks, pauses and rollbacks of a real Linux machine: systemd with its services, Docker with what runs in it, views, ports; each goes on in the copy, after the pause, and from the checkpoint. */
import { createReadStream, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeCheckpoint, removeCheckpoint, rollBack } from '../driver/checkpoints.js';
import { debianImage } from '../driver/debian-image.js';
import { DockerMachine, fetchLine, stepTimeoutMs } from '../driver/docker-machine.js';
import { OutsideWorld, outside } from '../driver/outside-world.js';
import { pauseSandbox, resumeSandbox } from '../driver/pauses.js';
import { TestNode, type TestSpec } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

const echoPort = 9007;
const slow = { timeout: 3 * stepTimeoutMs } as const;
let node: TestNode;
let world: OutsideWorld;

beforeAll(async () => {
  node = await TestNode.start({
    prepare: async (namespace) => {
      world = await OutsideWorld.open(namespace);
      await world.echo(echoPort);
    },
  });
}, stepTimeoutMs);
afterAll(async () => {
  world?.close();
  await node?.close();
}, stepTimeoutMs);

const out = (sandbox: TestSandbox, line: string) => sandbox.out(line, { timeoutMs: 300_000 });

async function forkOne(source: TestSandbox, change: TestSpec): Promise<TestSandbox> {
  const [copy] = (await node.requestFork(source, 1, { tokensFrom: 1, ...change })) as [TestSandbox];
  const { state, message } = await copy.untilState('running', 'failed');
  expect(state, message).toBe('running');
  return copy;
}

async function rest(sandbox: TestSandbox): Promise<void> {
  await pauseSandbox(node, sandbox);
  await resumeSandbox(node, sandbox);
  expect((await sandbox.untilState('running', 'paused', 'failed')).state).toBe('running');
}

/** Puts it back to where it is now, with memory, after `change` was done to it. */
async function comeBack(sandbox: TestSandbox, change: () => Promise<unknown>): Promise<void> {
  const { id } = await makeCheckpoint(node, sandbox, true);
  await change();
  await rollBack(node, sandbox, id, true);
  const { state, message } = await sandbox.untilState('running', 'failed');
  expect(state, message).toBe('running');
  await removeCheckpoint(node, id);
}

/** What is served on a port of the guest, asked as the node agent does for who forwards it. */
async function fetchPort(sandbox: TestSandbox, port: number): Promise<string> {
  const file = join(node.dataFolder, 'sandboxes', sandbox.id, 'record.json');
  const { network } = JSON.parse(readFileSync(file, 'utf8')) as { network: { index: number } };
  const space = `sl${node.instanceId}-${network.index}`;
  const program = `import subprocess, urllib.request
text = subprocess.run(['ip', '-n', '${space}', '-4', '-o', 'addr', 'show', 'up0'], capture_output=True, text=True).stdout
address = text.split()[3].split('/')[0]
try: print(urllib.request.urlopen(f'http://{address}:${port}/word', timeout=30).read().decode())
except OSError: print('')`;
  return node.namespace.run(['python3', '-c', program]).trim();
}

/** A machine whose systemd is up. */
async function createSystemd(): Promise<TestSandbox> {
  const packages = [
    ...['systemd', 'systemd-sysv', 'dbus', 'udev', 'libpam-systemd'],
    ...['procps', 'iproute2', 'openssh-server', 'kmod'],
  ];
  await node.importArchive(createReadStream(await debianImage('systemd', packages)), 'debian/systemd:1');
  const spec = { image: 'debian/systemd:1', vcpus: 2, memoryMiB: 1024, diskBytes: 4 * 2 ** 30 };
  const box = await node.create({ ...spec, init: true, tokensFrom: 1 });
  await box.until(
    'systemd is up',
    async () =>
      /running|degraded/.test((await box.sh('systemctl is-system-running', { timeoutMs: 60_000 })).stdout),
    350_000,
    1_000,
  );
  return box;
}

it('systemd: its services, timers and journal go on, under a new name in a copy', slow, async () => {
  const box = await createSystemd();
  const shape = { image: 'debian/systemd:1', vcpus: 2, memoryMiB: 1024, diskBytes: 4 * 2 ** 30, init: true };
  await out(
    box,
    `printf '[Service]\\nExecStart=/bin/sh -c "while :; do date +%%s%%N > /run/beat; sleep 0.3; done"\\n' > /etc/systemd/system/beat.service
printf '[Service]\\nType=oneshot\\nExecStart=/bin/sh -c "date +%%s%%N > /run/tick"\\n' > /etc/systemd/system/tick.service
printf '[Timer]\\nOnActiveSec=1\\nOnUnitActiveSec=1\\nAccuracySec=100ms\\n[Install]\\nWantedBy=timers.target\\n' > /etc/systemd/system/tick.timer
systemctl daemon-reload && systemctl start beat.service tick.timer`,
  );
  const pid = await out(box, 'systemctl show -p MainPID --value beat');
  const id = await out(box, 'cat /etc/machine-id');
  const goesOn = async (one: TestSandbox) => {
    expect(await out(one, 'systemctl is-active beat tick.timer ssh dbus')).toBe(
      'active\nactive\nactive\nactive',
    );
    expect(await out(one, 'systemctl show -p MainPID --value beat; cat /proc/1/comm')).toBe(
      `${pid}\nsystemd`,
    );
    for (const file of ['beat', 'tick']) {
      const before = await out(one, `cat /run/${file}`);
      await one.until(file, async () => (await out(one, `cat /run/${file}`)) !== before, 90_000, 500);
    }
    expect(
      await out(one, 'systemd-run --wait --pipe -q echo works && systemctl restart ssh && echo again'),
    ).toBe('works\nagain');
    await out(
      one,
      'logger -t here said-it; journalctl --sync; journalctl -t here -q --no-pager | grep -q said-it',
    );
  };
  const copy = await forkOne(box, shape);
  await goesOn(copy);
  expect(await out(copy, 'hostname; cat /etc/hostname')).toBe(`${copy.id}\n${copy.id}`);
  expect(await out(copy, 'cat /etc/machine-id')).not.toBe(id);
  await copy.delete();
  await rest(box);
  await goesOn(box);
  expect(await out(box, 'cat /etc/machine-id')).toBe(id);
  const state = 'systemctl is-system-running || true';
  const before = await out(box, state);
  await comeBack(box, () =>
    out(box, 'systemctl stop beat tick.timer && systemctl disable -q ssh && touch /root/late'),
  );
  expect(await out(box, state)).toBe(before);
  await goesOn(box);
  expect(await out(box, 'cat /etc/machine-id; systemctl is-enabled ssh; ls /root')).toBe(`${id}\nenabled`);
  await box.delete();
});

it('Docker: containers go on, theirs outside end in a copy alone, new ones start', slow, async () => {
  const packages = [
    ...['docker.io', 'docker-compose', 'iptables', 'kmod', 'ca-certificates', 'busybox-static'],
    ...['procps', 'iproute2'],
  ];
  const shape = { vcpus: 2, memoryMiB: 2048, diskBytes: 10 * 2 ** 30, tokensFrom: 1 };
  const docker = await DockerMachine.start(node, 'docker', packages, shape);
  const box = docker.sandbox;
  const counts = 'while :; do date +%s%N > /tmp/n; sleep 1; done';
  // Only reads: nobody speaks on that connection.
  const listens = `busybox mkfifo /tmp/f; exec 3<>/tmp/f; busybox nc ${outside.address} ${echoPort} <&3; echo ended > /tmp/ended; sleep 100000`;
  await docker.sh(`docker run -d --name counts bb:1 sh -c '${counts}'`);
  await docker.sh(`docker run -d --name listens bb:1 sh -c '${listens}'`);
  await docker.sh('docker run -d --name web -p 8000:80 bb:1 httpd -f -p 80 -h /www');
  await docker.until(
    'the container is connected',
    `nsenter -t $(docker inspect -f '{{.State.Pid}}' listens) -n ss -tn state established | grep -q ${echoPort}`,
  );
  const step = (one: TestSandbox, line: string) => one.out(line, { timeoutMs: stepTimeoutMs });
  const goesOn = async (one: TestSandbox) => {
    expect(await step(one, "docker ps --format '{{.Names}}' | sort | tr '\\n' ' '")).toBe(
      'counts listens web',
    );
    const before = await step(one, 'docker exec counts cat /tmp/n');
    await one.until(
      'it counts',
      async () => (await step(one, 'docker exec counts cat /tmp/n')) !== before,
      120_000,
      1_000,
    );
    expect(await step(one, 'docker run --rm bb:1 echo new')).toBe('new');
  };
  const ended = 'docker exec listens cat /tmp/ended 2>/dev/null || true';
  const copy = await forkOne(box, { image: 'debian/docker:1', ...shape });
  await goesOn(copy);
  await copy.until('its connection has ended', async () => (await step(copy, ended)) === 'ended', 120_000);
  expect(await step(box, ended)).toBe('');
  await copy.delete();
  await rest(box);
  await goesOn(box);
  expect(await step(box, ended)).toBe('');
  await comeBack(box, () =>
    docker.sh('docker rm -f web counts && docker run -d --name late bb:1 sleep 1000'),
  );
  await box.until('its connection has ended', async () => (await step(box, ended)) === 'ended', 120_000);
  await goesOn(box);
  await docker.until('its port is published', `${fetchLine('127.0.0.1', 8000)} | grep -qx page`);
  await docker.close();
});

it('views, sealed and mask, hide what they hid; a port is served where it was', slow, async () => {
  const serve = `mkdir -p /srv/shop; echo secret > /srv/shop/orders; mkdir -p /www; hostname > /www/word; cd /www; exec python3 -m http.server 8000`;
  const view = { strength: 'sealed', hide: ['/srv'] } as const;
  const startCommand = { argv: ['/bin/sh', '-c', serve] };
  const box = await node.create({ view, startCommand, tokensFrom: 1 });
  const bare = { view: { strength: 'none' } } as const;
  await box.until('it serves', async () => (await fetchPort(box, 8000)) !== '', 90_000, 500);
  const word = await fetchPort(box, 8000);
  const session = await box.exec(
    ['/bin/sh', '-c', 'while read line; do ls -A /srv; echo "end $line"; done'],
    {
      session: 'inside',
      stdin: true,
    },
  );
  session.close();
  const look = 'ls -A /srv; cat /srv/shop/orders 2>/dev/null';
  const hides = async (one: TestSandbox) => {
    const sh = async (options: object) => (await one.sh(look, { timeoutMs: 120_000, ...options })).stdout;
    expect(await sh({})).toBe('');
    expect(await sh({ view: { strength: 'mask', hide: ['/srv'] } })).toBe('');
    expect(await sh(bare)).toBe('shop\nsecret\n');
    const again = await one.attach('inside');
    await again.write(`${one.id}\n`);
    let said = '';
    for await (const chunk of again.stdout) {
      said += Buffer.from(chunk).toString();
      if (said.includes(`end ${one.id}\n`)) break;
    }
    again.close();
    expect(said.replace(/end .*\n/g, '')).toBe('');
    const agent = one.openAsAgent();
    expect((await agent.run(['/bin/sh', '-c', look], { timeoutMs: 120_000 })).stdout).toBe('');
    agent.close();
    expect(await fetchPort(one, 8000)).toBe(word);
  };
  const copy = await forkOne(box, { view, startCommand });
  await hides(copy);
  await copy.delete();
  await rest(box);
  await hides(box);
  await comeBack(box, async () => {
    await box.sh(
      'echo other > /srv/shop/orders; pkill -f http.server; kill -9 $(pgrep -f "while read line")',
      bare,
    );
  });
  await hides(box);
  await box.delete();
});

/** The image's init as process 1: systemd and what belongs to it, the agent beside it, reboot and power off. */
import { createReadStream } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { debianImage } from '../driver/debian-image.js';
import { bootIdFile, untilRebooted } from '../driver/reboots.js';
import { imageArchive } from '../driver/test-images.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

// systemd takes half a minute to come up in an emulated machine, several times that on a busy host.
vi.setConfig({ testTimeout: 500_000, hookTimeout: 900_000 });

/** systemd waits 90 s for a process that does not end. */
const shutdownMs = 60_000;

const image = 'debian/systemd:1';
const packages = [
  ...['systemd', 'systemd-sysv', 'dbus', 'udev', 'libpam-systemd'],
  ...['procps', 'iproute2', 'openssh-server', 'kmod'],
];

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
  await node.importArchive(createReadStream(await debianImage('systemd', packages)), image);
});
afterAll(() => node?.close());

/** A sandbox whose commands may take as long as a busy host needs. */
class Box {
  constructor(readonly sandbox: TestSandbox) {}

  sh(line: string) {
    return this.sandbox.sh(line, { timeoutMs: 300_000 });
  }

  out(line: string): Promise<string> {
    return this.sandbox.out(line, { timeoutMs: 300_000 });
  }

  until(what: string, check: () => Promise<boolean>): Promise<void> {
    return this.sandbox.until(what, check, 350_000, 1_000);
  }
}

async function createBox(spec = {}): Promise<Box> {
  return new Box(await node.create({ image, vcpus: 2, memoryMiB: 1024, diskBytes: 4 * 2 ** 30, ...spec }));
}

/** `systemctl is-system-running`, once it is not starting any more. */
async function systemState(box: Box): Promise<string> {
  let state = '';
  await box.until('systemd is up', async () => {
    state = (await box.sh('systemctl is-system-running')).stdout.trim();
    return !['', 'unknown', 'initializing', 'starting', 'offline'].includes(state);
  });
  return state;
}

/** A process in a sealed view that says so on the disk when it is asked to end, and one that does not end. */
async function leaveInView(box: Box): Promise<void> {
  await box.out('rm -f /root/asked /root/waits');
  const view = { strength: 'sealed', hide: ['/srv'] } as const;
  const lines = [
    "trap 'echo to end > /root/asked; exit' TERM; touch /root/waits; while :; do sleep 1; done",
    "trap '' TERM; while :; do sleep 1; done",
  ];
  for (const line of lines) await box.sandbox.exec(['/bin/sh', '-c', line], { view, session: true });
  await box.until('it waits in the view', async () => (await box.sh('test -e /root/waits')).exitCode === 0);
}

describe('systemd', () => {
  let box: Box;

  beforeAll(async () => {
    box = await createBox({ init: true, hostname: 'box', env: { GIVEN: 'yes' } });
  });

  it('is process 1 when the first command runs, and the agent is beside it', async () => {
    expect(await box.out('readlink /proc/1/exe; cat /proc/1/cgroup')).toMatch(
      /systemd\n0::\/(init\.scope)?$/,
    );
    expect(await box.out('cat /proc/self/cgroup')).toMatch(/^0::\/sandbox\/\d+$/);
    expect(await box.out('echo $GIVEN $HOSTNAME $(id -u)')).toBe('yes box 0');
    const agent = await box.out("pgrep -f '^@sandlot-agent'");
    expect(await box.out(`cat /proc/${agent}/cgroup /proc/${agent}/oom_score_adj`)).toBe(
      '0::/sandlot-agent\n-1000',
    );
  });

  it('runs, with no failed unit', async () => {
    const state = await systemState(box);
    expect(await box.out('systemctl --failed --no-legend --plain'), state).toBe('');
    expect(state).toBe('running');
    expect(await box.out('systemd-detect-virt; hostnamectl --static; systemctl is-active ssh')).toBe(
      'qemu\nbox\nactive',
    );
    expect((await box.out('cat /etc/machine-id')).length).toBe(32);
  });

  it('has a journal, a login manager, services and timers', async () => {
    expect(Number(await box.out('journalctl -b --no-pager -q | wc -l'))).toBeGreaterThan(50);
    await box.out('loginctl list-seats --no-legend | grep -qx seat0');
    await box.out(
      `printf '[Service]\\nType=oneshot\\nExecStart=/bin/sh -c "echo ticked >> /root/ticks; echo to the journal"\\n' > /etc/systemd/system/tick.service &&
printf '[Timer]\\nOnActiveSec=1\\nAccuracySec=100ms\\n' > /etc/systemd/system/tick.timer &&
systemctl daemon-reload && systemctl start tick.timer`,
    );
    await box.until(
      'the timer fires',
      async () => (await box.sh('grep -q ticked /root/ticks')).exitCode === 0,
    );
    await box.until(
      'the journal has it',
      async () =>
        (await box.sh('journalctl -u tick -q --no-pager | grep -q "to the journal"')).exitCode === 0,
    );
    expect(await box.out('systemd-run --wait --pipe -q sh -c "cat /proc/self/cgroup"')).toMatch(
      /system\.slice/,
    );
    expect(await box.out('su -l -c "systemctl is-system-running" root')).toBe('running');
  });

  it('leaves commands alone when it executes itself again and when it isolates', async () => {
    const sleeper = box.sandbox.run(['/bin/sh', '-c', 'sleep 25; echo slept'], { timeoutMs: 200_000 });
    await box.out('systemctl daemon-reexec');
    await box.out('systemctl isolate rescue.target --no-block; sleep 5');
    expect(await box.out('cat /proc/1/comm')).toBe('systemd');
    expect(await box.out('grep -c . /etc/resolv.conf; ls /lib/modules/$(uname -r)/modules.dep')).toMatch(
      /modules\.dep$/,
    );
    await box.out('systemctl isolate multi-user.target');
    expect((await sleeper).stdout).toBe('slept\n');
    expect(await box.out('systemctl is-active ssh')).toBe('active');
  });

  it('lets the kernel kill the right process for want of memory', async () => {
    const end = await box.sandbox.run(['dd', 'if=/dev/zero', 'of=/dev/null', 'bs=900M', 'count=1'], {
      timeoutMs: 200_000,
    });
    expect(end).toMatchObject({ oomKilled: true, exitCode: 137 });
    expect(await box.out('systemctl is-active ssh dbus')).toBe('active\nactive');
  });

  it('has views beside it: what is hidden is, its services are not reached, and it lets them live', async () => {
    await box.out('echo token > /srv/hidden');
    const view = { strength: 'sealed', hide: ['/srv'] } as const;
    const inView = (line: string) => box.sandbox.sh(line, { view, timeoutMs: 300_000 });
    const process = await box.sandbox.exec(['/bin/sh', '-c', 'echo begun; sleep 100000'], {
      view,
      session: true,
    });
    const seen = await inView(
      'id -u; ls -A /srv; cat /srv/hidden; ls /run/dbus /run/systemd/private; systemctl is-active ssh',
    );
    expect(seen.stdout).toMatch(/^0\n/);
    expect(seen.stdout + seen.stderr).not.toMatch(/token|system_bus_socket|^active/m);
    await box.out('systemctl daemon-reexec; systemctl reset-failed');
    expect((await inView('pgrep -c -x sleep')).stdout).toBe('1\n');
    expect(await box.out('systemctl --failed --no-legend --plain; systemctl is-system-running')).toBe(
      'running',
    );
    await process.signal('SIGKILL');
  });

  it('comes up once more inside a view', async () => {
    const view = { strength: 'sealed', hide: ['/srv'] } as const;
    const inView = (line: string) => box.sandbox.sh(line, { view, timeoutMs: 300_000 });
    const masks = ['debug', 'tracing', 'config']
      .map((name) => `systemd.mask=sys-kernel-${name}.mount`)
      .join(' ');
    await inView(
      `setsid env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin unshare -pfm --mount-proc /sbin/init ${masks} >/dev/null 2>&1 </dev/null &`,
    );
    let state = '';
    await box.until('the inner systemd is up', async () => {
      const asked = await inView('nsenter -m -p -t $(pgrep -o -x systemd) systemctl is-system-running');
      state = asked.stdout.trim();
      return !['', 'unknown', 'initializing', 'starting', 'offline'].includes(state);
    });
    const inner = await inView(
      'nsenter -m -p -t $(pgrep -o -x systemd) sh -c "systemctl --failed --no-legend --plain; cat /srv/hidden"',
    );
    expect(inner.stdout, state).toBe('');
    expect(state).toBe('running');
    await inView('kill -9 $(pgrep -o -x systemd)');
  });

  it('reaps what commands leave behind, at once', async () => {
    await box.out('for i in 1 2 3 4 5; do setsid sh -c "sleep 0.2" & done');
    await box.until(
      'no zombies are left',
      async () => (await box.out('ps -eo stat= | grep -c "^Z" || true')) === '0',
    );
  });

  it('reboots into the same sandbox, and a shutdown waits for nobody', async () => {
    await box.out('echo kept > /root/kept; rm -f /root/ticks');
    const bootId = await box.out(`cat ${bootIdFile}`);
    const machineId = await box.out('cat /etc/machine-id');
    const running = box.sandbox.run(['sleep', '300'], { timeoutMs: 380_000 });
    const ended = running.then(
      (result) => result.exitCode !== 0,
      (error: Error) => /reboot/i.test(error.message),
    );
    await leaveInView(box);
    // Before its boot has ended systemd refuses.
    expect(await systemState(box)).toBe('running');
    const begun = performance.now();
    await box.sh('systemctl reboot').catch(() => undefined);
    await untilRebooted(box, bootId);
    expect(performance.now() - begun).toBeLessThan(shutdownMs);
    expect(await ended).toBe(true);
    // It is found before process 1 has given itself its name.
    expect(await systemState(box)).toBe('running');
    expect(await box.out('cat /proc/1/comm /root/kept /etc/machine-id /root/asked')).toBe(
      `systemd\nkept\n${machineId}\nto end`,
    );
  });

  it('powers the sandbox off, and waits for nobody', async () => {
    await leaveInView(box);
    const begun = performance.now();
    await box.sh('systemctl poweroff').catch(() => undefined);
    expect(await box.sandbox.untilState('stopped')).toMatchObject({ reason: 'GUEST_SHUTDOWN' });
    expect(performance.now() - begun).toBeLessThan(shutdownMs);
    await box.sandbox.delete();
  });
});

it('a start command that is an init means the same', async () => {
  const box = await createBox({ startCommand: { argv: ['/bin/sh', '-c', '/lib/systemd/systemd'] } });
  expect(await box.out('cat /proc/1/comm')).toBe('systemd');
  await box.sandbox.delete();
});

it('a killed agent is told as such', async () => {
  const box = await createBox({ init: true });
  await box.sh('kill -9 -1').catch(() => undefined);
  expect(await box.sandbox.untilState('failed')).toMatchObject({ reason: 'AGENT_KILLED' });
  await box.sandbox.delete();
});

it('an image without an init is refused', async () => {
  await node.importArchive(await imageArchive([{ name: 'etc/motd', content: 'none' }]), 'noinit:1');
  const box = await node.request({ image: 'noinit:1', init: true });
  const report = await box.untilState('failed', 'running');
  expect(report).toMatchObject({ state: 'failed', reason: 'INIT_NOT_FOUND' });
  expect(report.message).toContain('/sbin/init');
  await box.delete();
});

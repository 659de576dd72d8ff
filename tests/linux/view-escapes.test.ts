/**
 * Root in a sealed view tries to see what is hidden, in every way that we know of, and sees nothing. Each try that root may make
 * elsewhere is made there too (in a mask, or outside), where it must work: so the test can fail.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { View } from '@sandlot/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hidden, mask, sealed, ViewMachine } from './view-machine.js';

const none = { strength: 'none' } as const;
/** For controls that leave the view in ruins. */
const oneMoreMask = { strength: 'mask', hide: [hidden], privateTmp: true } as const;

let machine: ViewMachine;
let sleeper: number;
let key: string;
let handle: string;

beforeAll(async () => {
  machine = await ViewMachine.open();
  sleeper = (await machine.startOutside('sleep 100000')).pid;
  key = (await machine.escape(none, 'add-key', machine.token)).trim();
  handle = (await machine.escape(none, 'print-handle')).trim();
  await machine.startOutside(`escape serve-abstract ${machine.token}`);
}, 600_000);
afterAll(() => machine?.close(), 120_000);

/** Name of a try, where root succeeds with it (nowhere: left out), and its argument. */
const tries: [name: string, control?: View, argument?: () => string | Promise<string>][] = [
  ['umount', mask],
  ['umount-in-copies', mask],
  ['bind', mask],
  ['overlay', mask],
  ['fuse'],
  ['rename'],
  ['pivot'],
  ['chroot'],
  ['new-root-mount', none],
  ['device', none],
  ['kernel-files', none],
  [
    'module',
    none,
    async () => (await machine.outside('echo /lib/modules/*/kernel/drivers/net/dummy.ko.xz')).stdout.trim(),
  ],
  ['bpf', none],
  ['memory', none],
  ['handle', none, () => handle],
  ['key', none, () => key],
  ['sysctl', none],
  ['nsenter', mask, () => String(sleeper)],
  ['ptrace', none, () => String(sleeper)],
  ['signal', none, () => String(sleeper)],
  ['abstract', none],
  ['proc-root', mask],
  ['proc', oneMoreMask, () => String(sleeper)],
];

describe('as root in a sealed view', () => {
  for (const [name, control, argument] of tries) {
    it(`is refused: ${name}`, async () => {
      const given = (await argument?.()) ?? '';
      const seen = await machine.escape(sealed, name, given);
      expect(seen).not.toContain(machine.token);
      expect(seen).toMatch(new RegExp(`^${name} refused`, 'm'));
      if (!control) return;
      const worked = await machine.escape(control, name, given, { env: { ONLY_OPEN: '1' } });
      expect(worked, 'the control').toMatch(new RegExp(`^${name} done`, 'm'));
    }, 180_000);
  }

  it('debugfs(8) of the disk shows nothing', async () => {
    const line = `mknod /tmp/disk b $(awk '$4 == "vda" {print $1}' /proc/partitions) 0
      for disk in /tmp/disk /dev/vda /opt/left-node; do debugfs -R 'cat ${hidden}/secret.txt' $disk 2>&1; done`;
    expect((await machine.sandbox.sh(line, { view: sealed })).stdout).not.toContain(machine.token);
    expect((await machine.outside(`sync; ${line}`)).stdout).toContain(machine.token);
  }, 120_000);

  it('cannot make the kernel run a program of its own as the machine’s root', async () => {
    const program = `#!/bin/sh\nPATH=/usr/bin:/bin; cat ${hidden}/secret.txt > /opt/leak.$$\n`;
    await machine.sandbox.files.uploadStream([Buffer.from(program)], '/opt/leaker');
    const lay = (path: string) => `rm -f ${path}; cp /opt/leaker ${path}; chmod 755 ${path}`;
    const requestKey = 'import ctypes; ctypes.CDLL(None).syscall(249, b"user", b"some-key", b"callout", -2)';
    const trigger = `python3 -c '${requestKey}'; python3 -c 'import socket; socket.socket(9, 5, 0)' 2>/dev/null
      mount -t nosuchfs none /mnt 2>/dev/null; timeout 5 /sbin/init --version >/dev/null 2>&1
      ulimit -c unlimited; sh -c 'kill -SEGV $$'; sleep 1`;
    await machine.outside(`${lay('/opt/handler')}; echo '|/opt/handler' > /proc/sys/kernel/core_pattern`);
    const view = { strength: 'sealed', hide: [hidden], readonly: ['/opt/free'] } as const;
    await machine.sandbox.out('true', { view });
    const paths = ['/sbin/request-key', '/sbin/modprobe', '/sbin/tomoyo-init', '/opt/handler'];
    await machine.sandbox.sh(`${paths.map(lay).join('\n')}\n${trigger}`, { view });
    expect(
      (await machine.outside('cat /opt/leak.* 2>/dev/null; cat /proc/sys/kernel/core_pattern')).stdout,
    ).toBe('core\n');
    await machine.outside(trigger);
    expect((await machine.outside('cat /opt/leak.*')).stdout, 'the control').toContain(machine.token);
    await machine.outside('rm -f /sbin/request-key /sbin/tomoyo-init /opt/leak.*');
  }, 180_000);

  it('no descriptor of outside comes with a command, and none leads up', async () => {
    for (const options of [{}, { stdin: 'x' }, { pty: { cols: 80, rows: 24 } }] as const) {
      const process = await machine.sandbox.exec(['escape', 'descriptors'], { view: sealed, ...options });
      let seen = '';
      for await (const chunk of process.stdout) seen += new TextDecoder().decode(chunk);
      await process.wait();
      expect(seen).not.toContain(machine.token);
      expect([...seen.matchAll(/^descriptor (\d+)/gm)].map((match) => Number(match[1]))).toEqual([0, 1, 2]);
    }
  }, 120_000);

  it('shell tools see nothing either: find, nsenter, unshare, other roots', async () => {
    const lines = [
      `find / -xdev -name 'secret.txt*' 2>/dev/null`,
      `grep -rs ${machine.token} /srv /proc/*/root/srv /proc/*/cwd 2>/dev/null`,
      `nsenter -t 1 -a cat ${hidden}/secret.txt`,
      `unshare -m sh -c 'umount -l ${hidden}; umount -R /srv; cat ${hidden}/secret.txt'`,
      `unshare -Urm sh -c 'umount -l ${hidden}; mount --bind /srv /mnt; cat ${hidden}/secret.txt /mnt/shop/data/secret.txt'`,
      `mount -o remount,rw ${hidden}; mount --move ${hidden} /mnt; cat ${hidden}/secret.txt`,
    ];
    for (const line of lines) {
      const { stdout } = await machine.sandbox.sh(line, { view: sealed });
      expect(stdout, line).not.toContain(machine.token);
      expect(stdout, line).not.toContain('secret.txt');
    }
  }, 180_000);
});

describe('from outside, in the middle of a command', () => {
  it('what is hidden cannot be renamed or replaced, nor what is above it; writing in place goes on', async () => {
    const look = `end=$(($(date +%s) + 20)); while [ $(date +%s) -lt $end ] && [ ! -e /opt/stop ]; do
      cat ${hidden}/* /srv/shop/*/secret.txt /srv/*/*/secret.txt /srv*/*/*/secret.txt /srv*/data/secret.txt 2>/dev/null; done; echo ended`;
    const inside = machine.sandbox.sh(look, { view: sealed, timeoutMs: 120_000 });
    await pause(1_000);
    const { token } = machine;
    const tried = await machine.outside(`
      mkdir -p /srv/new && echo ${token} > /srv/new/secret.txt
      mv -T /srv/new ${hidden} 2>&1; mv ${hidden} /srv/shop/moved 2>&1; mv /srv/shop /srv/moved 2>&1; mv /srv /srv9 2>&1
      rmdir ${hidden} 2>&1; rm -r /srv/new
      python3 -c "import ctypes; c = ctypes.CDLL(None, use_errno=True); print('exchange', c.renameat2(-100, b'${hidden}', -100, b'/opt/empty', 2), ctypes.get_errno())"
      echo more >> ${hidden}/secret.txt && echo written; mv ${hidden}/secret.txt ${hidden}/other.txt && mv ${hidden}/other.txt ${hidden}/secret.txt && echo renamed inside
      mkdir -p /opt/free/a && mv /opt/free/a /opt/free/b && echo others move; mount | grep -c /pins; touch /opt/stop`);
    expect(tried.stdout.match(/busy/gi)?.length, tried.stdout).toBeGreaterThanOrEqual(5);
    for (const text of ['exchange -1 16', 'written', 'renamed inside', 'others move'])
      expect(tried.stdout).toContain(text);
    const seen = await inside;
    expect(seen.stdout).toBe('ended\n');
    await machine.outside('rm -f /opt/stop');
  }, 240_000);

  it('a hidden file cannot be replaced by an atomic writer', async () => {
    const view = { strength: 'sealed', hide: ['/etc/answer'] } as const;
    expect((await machine.sandbox.sh('cat /etc/answer; stat -c %F:%U /etc/answer', { view })).stdout).toBe(
      'regular empty file:root\n',
    );
    const replaced = await machine.outside(
      `echo ${machine.token} > /etc/answer.new; mv -f /etc/answer.new /etc/answer 2>&1`,
    );
    expect(replaced.stdout).toMatch(/busy/i);
    expect((await machine.sandbox.sh('cat /etc/answer', { view })).stdout).toBe('');
  }, 120_000);

  it('a folder that is bound to a second place is hidden there too', async () => {
    await machine.outside(`mkdir -p /opt/second && mount --bind /srv/shop /opt/second`);
    const view = { strength: 'sealed', hide: [hidden], network: 'none' } as const;
    const { stdout } = await machine.sandbox.sh(
      'ls -A /opt/second/data; cat /opt/second/data/* /opt/second/public/page',
      {
        view,
      },
    );
    expect(stdout).toBe('public\n');
    await machine.outside('umount /opt/second');
  }, 120_000);
});

describe('at the entry of a command', () => {
  it('1,000 times nothing of the agent is caught', async () => {
    const lurker = machine.sandbox.run(['escape', 'lurk', '800'], { view: sealed, timeoutMs: 900_000 });
    let ran = 0;
    const runner = async () => {
      while (ran < 1_000) {
        ran++;
        const result = await machine.sandbox.run(['/bin/true'], { view: sealed });
        expect(result.exitCode).toBe(0);
      }
    };
    await Promise.all([runner(), runner(), runner()]);
    await machine.outside('touch /opt/stop-lurking');
    const { stdout } = await lurker;
    expect(stdout).not.toContain(machine.token);
    expect(stdout).not.toContain('caught');
    expect(Number(/looked at (\d+)/.exec(stdout)?.[1])).toBeGreaterThan(200);
    await machine.outside('rm /opt/stop-lurking');
  }, 900_000);

  it('a working directory that never answers holds the agent up for seconds only', async () => {
    const view = { strength: 'sealed', hide: [hidden], privateTmp: true } as const;
    await machine.sandbox.out('mkdir -p /mnt/never');
    const server = await machine.sandbox.exec(['escape', 'hang', '/mnt/never'], { view, session: true });
    await machine.sandbox.until('it is mounted', async () =>
      (await machine.sandbox.sh('grep -c never /proc/mounts', { view })).stdout.includes('1'),
    );
    const stuck = await machine.sandbox.run(['/bin/true'], { view, cwd: '/mnt/never', timeoutMs: 60_000 });
    expect(stuck.exitCode).not.toBe(0);
    expect((await machine.outside('echo alive')).stdout).toBe('alive\n');
    await server.signal('SIGKILL');
  }, 120_000);
});

/** Ordinary work in views: what root does in a machine, commands and their ends, networks, and what a view costs. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { RunOptions } from '@sandlot/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { outside } from '../driver/outside-world.js';
import { staticProgram } from '../driver/test-images.js';
import { hidden, mask, sealed, ViewMachine } from './view-machine.js';

let machine: ViewMachine;

beforeAll(async () => {
  machine = await ViewMachine.open();
}, 600_000);
afterAll(() => machine?.close(), 120_000);

const slow = { timeout: 240_000 } as const;

/** A line of shell in the sealed view; its output. */
async function inside(line: string, options: RunOptions = {}): Promise<string> {
  const result = await machine.sandbox.sh(line, { view: sealed, timeoutMs: 120_000, ...options });
  return result.stdout + result.stderr;
}

/** A package with a program that has the setuid bit, and a script that makes a user. */
function debianPackage(): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'slt-deb-'));
  try {
    const root = join(folder, 'root');
    mkdirSync(join(root, 'DEBIAN'), { recursive: true });
    mkdirSync(join(root, 'usr/bin'), { recursive: true });
    const whoami = '#include <stdio.h>\n#include <unistd.h>\nint main() { printf("%d\\n", (int)geteuid()); }';
    writeFileSync(join(root, 'usr/bin/effective'), staticProgram(whoami), { mode: 0o755 });
    execFileSync('chmod', ['4755', join(root, 'usr/bin/effective')]);
    const control =
      'Package: effective\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\nDescription: tells the effective user\n';
    writeFileSync(join(root, 'DEBIAN/control'), control);
    writeFileSync(join(root, 'DEBIAN/postinst'), '#!/bin/sh\nuseradd --system --no-create-home effective\n', {
      mode: 0o755,
    });
    execFileSync('dpkg-deb', ['--root-owner-group', '--build', root, join(folder, 'effective.deb')]);
    return readFileSync(join(folder, 'effective.deb'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

describe('root in a sealed view', () => {
  it('installs packages; ids and modes on disk are the plain ones', slow, async () => {
    await machine.sandbox.files.uploadStream([debianPackage()], '/root/effective.deb');
    expect(await inside('dpkg -i /root/effective.deb 2>&1; getent passwd effective')).toMatch(
      /^effective:x:/m,
    );
    expect((await machine.outside('stat -c %u:%g:%a /usr/bin/effective')).stdout).toBe('0:0:4755\n');
    expect(await inside('stat -c %U:%a /usr/bin/effective; effective', { user: 'nobody' })).toBe(
      'root:4755\n0\n',
    );
  });

  it('makes users, and becomes them: useradd, su, sudo, ids above 16 bits', slow, async () => {
    const seen = await inside(`useradd -m bob && su bob -c 'id -un; touch ~/mine'
      echo 'bob ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/bob; su bob -c 'sudo id -u'
      useradd -u 3000000 -m big 2>/dev/null && su big -c 'id -u; touch ~/mine'`);
    expect(seen).toBe('bob\n0\n3000000\n');
    expect((await machine.outside('stat -c %U /home/bob/mine; stat -c %u /home/big/mine')).stdout).toBe(
      'bob\n3000000\n',
    );
    expect(await inside('id -un; echo home $HOME; echo to stdout > /dev/stdout', { user: 'bob' })).toBe(
      'bob\nhome /home/bob\nto stdout\n',
    );
  });

  it('has firewalls of both kinds, links, namespaces, cgroups, mounts of its own', slow, async () => {
    const seen = await inside(`
      iptables -A INPUT -p tcp --dport 9 -j DROP && echo iptables; iptables-legacy -t nat -L -n >/dev/null && echo legacy
      nft list ruleset | grep -q . && echo nft
      ip link add br0 type bridge && ip link add d0 type dummy && ip tuntap add t0 mode tap && echo links
      ip netns add n && ip netns exec n true && echo netns
      unshare -Urmnp --mount-proc -f sh -c 'id -u; mount -t tmpfs t /mnt && echo nested'
      su nobody -s /bin/sh -c 'unshare -Urm id -u'
      mkdir -p /tmp/l /tmp/u /tmp/w /tmp/m; echo low > /tmp/l/f
      mount -t overlay o /tmp/m -o lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w && cat /tmp/m/f && umount /tmp/m
      fuse-overlayfs -o lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w /tmp/m && cat /tmp/m/f && umount /tmp/m
      mkdir /sys/fs/cgroup/mine && echo +memory > /sys/fs/cgroup/cgroup.subtree_control && echo 20000000 > /sys/fs/cgroup/mine/memory.max && sh -c 'echo $$ > /sys/fs/cgroup/mine/cgroup.procs; cat /proc/self/cgroup'
      hostname inside && hostname; strace -f -e trace=execve true 2>&1 | grep -c execve`);
    for (const line of [
      'iptables',
      'legacy',
      'nft',
      'links',
      'netns',
      'nested',
      'low',
      '0::/mine',
      'inside',
      '1',
    ])
      expect(seen.split('\n'), seen).toContain(line);
    expect((await machine.outside('hostname')).stdout).not.toContain('inside');
  });

  it('has terminals: tmux, tty, job control', slow, async () => {
    expect(await inside('tmux new-session -d -s t "sleep 50" && tmux ls && tmux kill-server')).toContain(
      't: 1 windows',
    );
    const process = await machine.sandbox.exec(['/bin/bash', '-i'], {
      view: sealed,
      pty: { cols: 90, rows: 20 },
    });
    await process.write('tty; stty size; sleep 100 & jobs; kill %1; ls -l $(tty) | cut -c1-20; exit 3\n');
    let seen = '';
    for await (const chunk of process.stdout) seen += new TextDecoder().decode(chunk);
    expect(seen).toMatch(/^\/dev\/pts\/\d+\r/m);
    expect(seen).toContain('20 90');
    expect(seen).toMatch(/\[1\].*Running/);
    expect((await process.wait()).exitCode).toBe(3);
  });

  it('looks like a machine: owners, devices, process 1, no other processes', slow, async () => {
    expect(
      await inside('stat -c %U:%G / /etc /tmp /dev /dev/null /run /dev/pts /lib/modules | sort -u'),
    ).toBe('root:root\n');
    expect(await inside('ls /dev')).not.toMatch(/vda|mem|kmsg|vport|hvc|ttyS/);
    expect(await inside('cat /proc/1/comm; ps ax -o pid= | wc -l')).toMatch(/^sandlot-view\n[2-6]\n$/);
    expect(await inside(`ls -A ${hidden} /run/lock; stat -c %a ${hidden}; touch ${hidden}/x`)).toContain(
      'Read-only',
    );
  });
});

describe('networks', () => {
  it(
    'own: the machine at 10.0.3.1, the outside by name, nothing of the machine’s loopback',
    slow,
    async () => {
      await machine.startOutside('python3 -m http.server 8000 --directory /srv/shop/public');
      await machine.startOutside('python3 -m http.server 8001 --bind 127.0.0.1 --directory /srv/shop/public');
      const seen = await inside(`
      for try in 1 2 3 4 5 6 7 8 9; do curl -sf -m 5 http://10.0.3.1:8000/page && break; sleep 1; done
      curl -sS -m 5 http://127.0.0.1:8001/page; curl -sS -m 5 http://10.0.3.1:8001/page
      curl -s -m 20 http://${outside.name}/ && echo; ping -c1 -W5 10.0.3.1 | grep -c '1 received'
      su nobody -s /bin/sh -c "ping -c1 -W5 10.0.3.1 | grep -c '1 received'"`);
      const lines = seen.split('\n');
      expect(lines[0], seen).toBe('public');
      expect(seen).toContain('outside sees');
      expect(lines.filter((line) => line === '1')).toHaveLength(2);
      expect(seen.match(/^public$/gm)).toHaveLength(1);
    },
  );

  it('none: loopback alone', slow, async () => {
    const view = { strength: 'sealed', network: 'none' } as const;
    expect(await inside('ip -o link | wc -l; ping -c1 -W2 127.0.0.1 | grep -c "1 received"', { view })).toBe(
      '1\n1\n',
    );
    expect(await inside('curl -sS -m 5 http://10.0.3.1:8000/page', { view })).not.toContain('public');
  });
});

describe('commands', () => {
  for (const view of [sealed, mask]) {
    it(`in a ${view.strength} view end as everywhere`, slow, async () => {
      const run = (line: string, options: RunOptions = {}) => machine.sandbox.sh(line, { view, ...options });
      expect(await run('echo o; echo e >&2; exit 5')).toMatchObject({
        stdout: 'o\n',
        stderr: 'e\n',
        exitCode: 5,
      });
      expect((await run('kill -9 $$')).signal).toBe('SIGKILL');
      expect((await machine.sandbox.run(['no-such-program'], { view })).exitCode).toBe(127);
      expect((await run('true', { cwd: '/nowhere' })).exitCode).toBe(126);
      expect((await run('true', { user: 'stranger' })).exitCode).toBe(126);
      expect((await run('cat', { stdin: 'through' })).stdout).toBe('through');
      const late = await run('setsid sleep 98765 & sleep 98765', { timeoutMs: 1_500 });
      expect(late.timedOut).toBe(true);
      expect(await machine.sandbox.processesWith('sleep\0' + '98765')).toBe(0);
      const hungry = await run(
        `python3 -c "x = bytearray(3 << 30)"; python3 -c "
b = []
while True: b.append(bytearray(b'x' * (16 << 20)))"`,
        { timeoutMs: 120_000 },
      );
      expect(hungry).toMatchObject({ oomKilled: true, exitCode: 137 });
    });
  }

  it('of equal views meet; of others do not', slow, async () => {
    const one = { strength: 'sealed', hide: ['/srv/shop/data', '/home'], privateTmp: true } as const;
    const same = {
      strength: 'sealed',
      hide: ['/home', '/srv/shop/data'],
      privateTmp: true,
    } as const;
    await inside('echo here > /tmp/private; echo run > /run/private', { view: one });
    expect(await inside('cat /tmp/private /run/private', { view: same })).toBe('here\nrun\n');
    expect(await inside('cat /tmp/private /run/private')).not.toContain('here');
    expect((await machine.outside('cat /tmp/private /run/private')).stdout).toBe('');
  });

  it('are told when reboot ends their view, and the next makes it anew', slow, async () => {
    const view = { strength: 'sealed', hide: ['/srv/shop'] } as const;
    const running = machine.sandbox.sh('sleep 1000', { view, timeoutMs: 100_000 });
    await machine.sandbox.sh(
      `python3 -c "import ctypes; ctypes.CDLL(None).syscall(169, 0xfee1dead, 672274793, 0x1234567, 0)"; sleep 5`,
      { view },
    );
    const ended = await running;
    expect(ended).toMatchObject({ exitCode: 137 });
    expect(ended.error).toMatch(/view .* was ended/);
    expect(await inside('ls -A /srv/shop; ip -o addr show eth0 | grep -c 10.0.3', { view })).toBe('1\n');
    expect((await machine.outside('echo machine lives')).stdout).toBe('machine lives\n');
  });

  it('are refused a view that cannot be made, with the reason', slow, async () => {
    await machine.outside('ln -s /srv /opt/link');
    for (const [path, reason] of [
      ['/opt/nothing', /\/opt\/nothing does not exist/],
      ['/opt/link/shop', /symbolic link.*\/srv\/shop/],
      ['/run/x', /of its own/],
    ] as const) {
      const refused = await machine.sandbox.sh('echo never', { view: { strength: 'sealed', hide: [path] } });
      expect(refused).toMatchObject({ exitCode: 126, stdout: '' });
      expect(refused.stderr).toMatch(reason);
    }
  });
});

describe('cost', () => {
  it('an exec in a sealed view at most 2 x a plain one, making a view at most 10 x', {
    timeout: 600_000,
  }, async () => {
    const median = (times: number[]) => times.sort((a, b) => a - b)[Math.floor(times.length / 2)] as number;
    const timed = async (options: RunOptions) => {
      const begun = performance.now();
      expect((await machine.sandbox.run(['/bin/true'], options)).exitCode).toBe(0);
      return performance.now() - begun;
    };
    const kinds = { plain: { strength: 'none' }, sealed, mask } as const;
    const times: Record<string, number[]> = { plain: [], sealed: [], mask: [], made: [] };
    for (const view of Object.values(kinds)) await timed({ view });
    for (let round = 0; round < 40; round++)
      for (const [kind, view] of Object.entries(kinds)) times[kind]?.push(await timed({ view }));
    for (let round = 0; round < 5; round++) {
      const folder = `/opt/cost${round}`;
      await machine.outside(`mkdir -p ${folder}`);
      const whole = await timed({ view: { strength: 'sealed', hide: [hidden, folder] } });
      times.made?.push(whole - median([...(times.sealed ?? [])]));
    }
    const plain = median(times.plain ?? []);
    const ratio = (kind: string) => Math.round((median(times[kind] ?? []) / plain) * 100) / 100;
    const line = `plain ${plain.toFixed(1)} ms; sealed ${ratio('sealed')} x, mask ${ratio('mask')} x, making ${ratio('made')} x`;
    process.stdout.write(`views: ${line}\n`);
    expect(ratio('sealed'), line).toBeLessThanOrEqual(2);
    expect(ratio('mask'), line).toBeLessThanOrEqual(1.5);
    expect(ratio('made'), line).toBeLessThanOrEqual(10);
  });

  it('sixteen views are enough: one more is refused', { timeout: 600_000 }, async () => {
    let refused = '';
    for (let round = 0; round < 17 && !refused; round++) {
      await machine.outside(`mkdir -p /opt/many${round}`);
      const view = { strength: 'mask', hide: [`/opt/many${round}`] } as const;
      refused = (await machine.sandbox.sh('true', { view })).stderr;
    }
    expect(refused).toMatch(/16 views already/);
    expect(await inside('echo still works')).toBe('still works\n');
  });
});

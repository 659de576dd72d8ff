// Bare Linux: a plain VM of the image on a raw disk, a tap in a namespace of its own with iperf3 behind it. The machine is
// that of `make fidelity` (tests/fidelity/places/plain-machine.ts, compiled by tools/bench-linux.sh). Used by group `linux`.
import { execFileSync, spawn } from 'node:child_process';
import { copyFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Qmp } from './qmp.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');

/** Address of the host on the tap, as the guest has it as gateway. */
export const plainHost = '10.0.2.2';

/** Root disk of the plain VM in GiB, as the product's. */
export const diskGib = 6;

/**
 * Boots one; answers it, what its systemd says then, the milliseconds from QEMU's start to that, and how to hold it. `setup`: namespace (made by
 * tools/bench-linux.sh), folder for its files, image, shape, and a folder whose files it finds in /mnt.
 */
export async function bootPlain(setup) {
  const { PlainMachine, makeFileSystem, preparePlainImage } = await import(
    path.join(root, '.cache/fidelity/js/places/plain-machine.js')
  );
  const { folder, namespace, image, inputs, vcpus, memoryMiB, accelerator } = setup;
  const { disk, initrd } = preparePlainImage({ ...image, gib: diskGib, say: () => {} });
  const own = path.join(folder, 'plain-root.ext4');
  // Sparse, and raw: an image file of another kind would be a mechanism of its own.
  execFileSync('cp', ['--sparse=always', disk, own]);
  const tar = path.join(folder, 'inputs.tar');
  execFileSync('tar', ['--owner=0', '--group=0', '-cf', tar, '-C', inputs, '.']);
  const brought = path.join(folder, 'plain-inputs.ext4');
  makeFileSystem(brought, tar, 256);
  const qmp = path.join(folder, 'qmp');
  const begin = performance.now();
  const machine = new PlainMachine({
    guest: path.join(root, '.cache/guest'),
    kvm: accelerator === 'kvm',
    log: path.join(folder, 'plain-console.log'),
    ...{ initrd, vcpus, memoryMiB, qmp },
    disks: [
      { id: 'root', format: 'raw', path: own },
      { id: 'inputs', format: 'raw', path: brought },
    ],
    tap: { name: makeTap(namespace), namespace },
  });
  try {
    const state = await machine.boot();
    const ms = performance.now() - begin;
    const control = await Qmp.open(qmp);
    return {
      ...{ state, ms },
      sh: (line, timeoutMs) => machine.sh(line, timeoutMs),
      // Its clock stands still with it.
      pause: () => control.run('stop'),
      resume: () => control.run('cont'),
      close: async () => {
        control.close();
        await machine.close();
      },
    };
  } catch (error) {
    copyFileSync(
      path.join(folder, 'plain-console.log'),
      path.join(root, '.cache/log/bench-linux-console.log'),
    );
    await machine.close();
    throw error;
  }
}

/** A tap with the gateway's address. */
function makeTap(namespace) {
  const ip = (...args) => execFileSync('ip', ['-n', namespace, ...args]);
  ip('tuntap', 'add', 'dev', 'tap0', 'mode', 'tap');
  ip('addr', 'add', `${plainHost}/24`, 'dev', 'tap0');
  ip('link', 'set', 'tap0', 'up');
  return 'tap0';
}

/** `iperf3 -s` in a namespace; ends with us. */
export function serveIperf3(namespace) {
  const argv = [
    `--net=/run/netns/${namespace}`,
    '--',
    'setpriv',
    '--pdeathsig=KILL',
    '--',
    'iperf3',
    '--server',
  ];
  const child = spawn('nsenter', argv, { stdio: ['ignore', 'ignore', 'inherit'] });
  return { close: () => child.kill('SIGKILL') };
}

/** The plain VM as a place of the table: the probes come on a disk, run in a root login, and their results go to a disk. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { guestFolder, type Inputs, type PlaceResult, ResultLines, runnerArgv } from './place.js';
import {
  makeEmpty,
  makeFileSystem,
  type PlainDisk,
  PlainMachine,
  preparePlainImage,
} from './plain-machine.js';

const resultMiB = 16;

/** Boots it, runs the probes, ends it. */
export async function runPlainVm(inputs: Inputs): Promise<PlaceResult> {
  const folder = join(inputs.cache, 'plain-vm');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const { initrd, disks, results } = makeDisks(inputs, folder);
  const machine = new PlainMachine({
    guest: join(inputs.root, '.cache/guest'),
    log: join(folder, 'console.log'),
    vcpus: inputs.vcpus,
    memoryMiB: inputs.memoryMiB,
    initrd,
    disks,
  });
  try {
    await machine.boot();
    inputs.say('plain VM: booted');
    await machine.sh(
      `mkdir -p ${guestFolder} && mount -o ro /dev/vdb /mnt && cp -a /mnt/. ${guestFolder}/ && umount /mnt && ` +
        `${runnerArgv(inputs).join(' ')} >/tmp/results; cat /tmp/results >/dev/vdc; sync`,
      inputs.timeoutMs,
    );
  } finally {
    await machine.close();
  }
  const lines = new ResultLines();
  lines.addAll(readFileSync(results, 'utf8').split('\0')[0] ?? '');
  if (!lines.ended)
    throw new Error(`the plain VM did not come to an end; its console is in ${folder}/console.log`);
  const qemuVersion =
    execFileSync('qemu-system-x86_64', ['--version'], { encoding: 'utf8' }).split('\n')[0] ?? '';
  return {
    name: 'plain VM',
    about: `${qemuVersion}, microvm, TCG, ${inputs.vcpus} processors, ${inputs.memoryMiB} MiB; booted by initramfs-tools and systemd; a root login on ttyS0`,
    values: lines.values,
    times: lines.times,
  };
}

function makeDisks(inputs: Inputs, folder: string): { initrd: string; disks: PlainDisk[]; results: string } {
  const { disk, initrd } = preparePlainImage({ ...inputs, gib: 2 });
  const [root, kit, results, tar] = ['root.qcow2', 'kit.ext4', 'results', 'kit.tar'].map((name) =>
    join(folder, name),
  ) as [string, string, string, string];
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', disk, '-F', 'raw', root, '2G']);
  execFileSync('tar', ['--owner=0', '--group=0', '-cf', tar, '-C', inputs.kit, '.']);
  makeFileSystem(kit, tar, 32);
  makeEmpty(results, resultMiB);
  return {
    initrd,
    results,
    disks: [
      { id: 'root', format: 'qcow2', path: root },
      { id: 'kit', format: 'raw', path: kit },
      { id: 'results', format: 'raw', path: results },
    ],
  };
}

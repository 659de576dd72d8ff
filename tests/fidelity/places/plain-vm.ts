/**
 * The plain VM: QEMU's microvm with the same kernel, memory and processors, the same image as root file system
 * (made by mke2fs with Debian's defaults), booted by its own initrd and systemd. Probes run in a root login on the
 * serial console. None of our code is in it.
 */
import { execFileSync, spawn } from 'node:child_process';
import {
  createWriteStream,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { guestFolder, type Inputs, type PlaceResult, ResultLines, runnerArgv } from './place.js';

const bootTimeoutMs = 600_000;
const resultBytes = 16 * 1024 * 1024;

/** Boots it, runs the probes, ends it. */
export async function runPlainVm(inputs: Inputs): Promise<PlaceResult> {
  const folder = join(inputs.cache, 'plain-vm');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const files = makeDisks(inputs, folder);
  const qemu = spawn('qemu-system-x86_64', buildArguments(inputs, files), {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  try {
    const console = new SerialConsole(qemu, join(folder, 'console.log'));
    await console.until(/login: $/, bootTimeoutMs);
    inputs.say('plain VM: booted');
    qemu.stdin.write('root\n');
    await console.until(/# $/, bootTimeoutMs);
    // A login says `running` only when the last job of the boot has ended.
    qemu.stdin.write('systemctl is-system-running --wait; stty -echo; PS1=; echo begin\n');
    await console.until(/\nbegin\r?\n/, bootTimeoutMs);
    qemu.stdin.write(
      `mkdir -p ${guestFolder} && mount -o ro /dev/vdb /mnt && cp -a /mnt/. ${guestFolder}/ && umount /mnt && ` +
        `${runnerArgv(inputs).join(' ')} >/tmp/results; cat /tmp/results >/dev/vdc; sync; echo probes have ended\n`,
    );
    await console.until(/\nprobes have ended\r?\n/, inputs.timeoutMs);
  } finally {
    qemu.kill('SIGKILL');
  }
  const lines = new ResultLines();
  lines.addAll(readFileSync(files.results, 'utf8').split('\0')[0] ?? '');
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

interface Files {
  kernel: string;
  initrd: string;
  root: string;
  kit: string;
  results: string;
}

function makeDisks(inputs: Inputs, folder: string): Files {
  const base = join(inputs.cache, `plain-${inputs.imageKey}.ext4`);
  const initrd = join(inputs.cache, `plain-${inputs.imageKey}.initrd`);
  if (!existsSync(base)) {
    inputs.say('plain VM: making its disk');
    const names = execFileSync('tar', ['-tf', inputs.layer], { encoding: 'utf8', maxBuffer: 256 * 2 ** 20 });
    const member = names.split('\n').find((name) => /^\.\/boot\/initrd\.img-\d/.test(name));
    if (!member) throw new Error(`${inputs.layer} has no initrd in /boot`);
    const image = execFileSync('tar', ['-xOf', inputs.layer, member], { maxBuffer: 512 * 2 ** 20 });
    writeFileSync(initrd, image);
    truncate(`${base}.new`, 2);
    mke2fs([`${base}.new`], inputs.layer);
    renameSync(`${base}.new`, base);
  }
  const files = {
    // The package's kernel. Its header alone is changed (tools/guest-assets/build.sh says why microvm needs that).
    kernel: join(inputs.root, '.cache/guest/vmlinuz'),
    initrd,
    root: join(folder, 'root.qcow2'),
    kit: join(folder, 'kit.ext4'),
    results: join(folder, 'results'),
  };
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', base, '-F', 'raw', files.root, '2G']);
  const tar = join(folder, 'kit.tar');
  execFileSync('tar', ['--owner=0', '--group=0', '-cf', tar, '-C', inputs.kit, '.']);
  writeFileSync(files.kit, '');
  truncateSync(files.kit, 32 * 2 ** 20);
  mke2fs([files.kit], tar);
  writeFileSync(files.results, '');
  truncateSync(files.results, resultBytes);
  return files;
}

function truncate(path: string, gib: number): void {
  writeFileSync(path, '');
  truncateSync(path, gib * 2 ** 30);
}

function mke2fs(target: string[], tar: string): void {
  execFileSync('mke2fs', ['-q', '-F', '-t', 'ext4', '-d', tar, ...target], {
    env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/sbin` },
  });
}

function buildArguments(inputs: Inputs, files: Files): string[] {
  const tscKhz = execFileSync(join(inputs.root, '.cache/guest/measure-tsc'), { encoding: 'utf8' }).trim();
  const disk = (id: string, format: string, path: string, more = '') => [
    '-blockdev',
    `driver=${format},node-name=${id},file.driver=file,file.filename=${path}${more}`,
    '-device',
    `virtio-blk-device,drive=${id}`,
  ];
  return [
    ...['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-machine', 'microvm'],
    // The product's emulated processor and clock (packages/vmm/src/qemu/argv.ts).
    ...['-accel', 'tcg', '-cpu', 'max,erms=off,fsrm=off,fzrm=off,fsrs=off'],
    ...[
      '-smp',
      String(inputs.vcpus),
      '-m',
      `${inputs.memoryMiB}M`,
      '-kernel',
      files.kernel,
      '-initrd',
      files.initrd,
    ],
    '-append',
    `root=/dev/vda rw console=ttyS0 quiet panic=-1 reboot=t tsc_early_khz=${tscKhz} tsc=reliable mitigations=off net.ifnames=0`,
    ...['-serial', 'stdio'],
    ...disk('root', 'qcow2', files.root, ',discard=unmap'),
    ...disk('kit', 'raw', files.kit),
    ...disk('results', 'raw', files.results),
    ...['-netdev', 'user,id=net0,ipv6=off', '-device', 'virtio-net-device,netdev=net0,mac=52:54:00:12:34:56'],
    ...['-device', 'virtio-rng-device'],
  ];
}

/** Output of the serial console, kept in a file, with waiting for a text at its end. */
class SerialConsole {
  #text = '';
  #wake = () => {};
  #ended = false;

  constructor(child: ReturnType<typeof spawn>, log: string) {
    const file = createWriteStream(log);
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      file.write(text);
      this.#text = (this.#text + text).slice(-4096);
      this.#wake();
    });
    child.once('exit', () => {
      this.#ended = true;
      this.#wake();
    });
  }

  /** Waits until the output matches; what has matched is then forgotten. */
  async until(pattern: RegExp, timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (!pattern.test(this.#text)) {
      const left = deadline - performance.now();
      if (this.#ended || left <= 0)
        throw new Error(
          `the plain VM ${this.#ended ? 'ended' : 'did not answer'} before ${pattern}: ${this.#text.slice(-1500)}`,
        );
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.#text = '';
  }
}

/**
 * A plain VM of an image: QEMU's microvm with the guest's kernel, the image as root file system (made by mke2fs with
 * Debian's defaults), booted by its own initrd and systemd, used by a root login on the serial console. None of our code
 * is in it. Used by plain-vm.ts and, compiled, by tests/bench/bare/linux.mjs.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createWriteStream, existsSync, renameSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const bootTimeoutMs = 600_000;

/** What an image's root disk is made from. */
export interface PlainImage {
  /** Where it is kept between runs. */
  cache: string;
  /** The image's only layer. */
  layer: string;
  imageKey: string;
  gib: number;
  say: (text: string) => void;
}

/** One virtual disk. */
export interface PlainDisk {
  id: string;
  format: 'raw' | 'qcow2';
  path: string;
}

/** What the machine is. */
export interface PlainSpec {
  /** Folder of the guest's kernel (`.cache/guest`). */
  guest: string;
  initrd: string;
  vcpus: number;
  memoryMiB: number;
  kvm?: boolean;
  /** vda is the root, then vdb and so on. */
  disks: readonly PlainDisk[];
  /** A tap in a network namespace; absent: QEMU's own network. */
  tap?: { name: string; namespace: string };
  /** What the console prints goes here. */
  log: string;
  /** Path for QEMU's control socket, if one is wanted. */
  qmp?: string;
}

/** The raw root disk and the initrd of an image; made if they are not there. */
export function preparePlainImage(image: PlainImage): { disk: string; initrd: string } {
  const disk = join(image.cache, `plain-${image.imageKey}.ext4`);
  const initrd = join(image.cache, `plain-${image.imageKey}.initrd`);
  if (existsSync(disk)) return { disk, initrd };
  image.say('plain VM: making its disk');
  const names = execFileSync('tar', ['-tf', image.layer], { encoding: 'utf8', maxBuffer: 256 * 2 ** 20 });
  const member = names.split('\n').find((name) => /^\.\/boot\/initrd\.img-\d/.test(name));
  if (!member) throw new Error(`${image.layer} has no initrd in /boot`);
  writeFileSync(initrd, execFileSync('tar', ['-xOf', image.layer, member], { maxBuffer: 512 * 2 ** 20 }));
  makeFileSystem(`${disk}.new`, image.layer, image.gib * 1024);
  renameSync(`${disk}.new`, disk);
  return { disk, initrd };
}

/** An ext4 in a sparse file, filled from a tar. */
export function makeFileSystem(path: string, tar: string, mebibytes: number): void {
  makeEmpty(path, mebibytes);
  execFileSync('mke2fs', ['-q', '-F', '-t', 'ext4', '-d', tar, path], {
    env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/sbin` },
  });
}

/** A sparse file. */
export function makeEmpty(path: string, mebibytes: number): void {
  writeFileSync(path, '');
  truncateSync(path, mebibytes * 2 ** 20);
}

/** A running one. */
export class PlainMachine {
  readonly console: SerialConsole;
  readonly #qemu: ChildProcess;

  /** Starts QEMU; it ends with us. */
  constructor(spec: PlainSpec) {
    const enter = spec.tap ? ['nsenter', `--net=/run/netns/${spec.tap.namespace}`, '--'] : [];
    const [program = '', ...argv] = [
      ...enter,
      ...['setpriv', '--pdeathsig=KILL', '--', 'qemu-system-x86_64'],
      ...buildArguments(spec),
    ];
    this.#qemu = spawn(program, argv, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.console = new SerialConsole(this.#qemu, spec.log);
  }

  /** Logs in, waits for the end of the boot; answers what `systemctl is-system-running` says then. */
  async boot(): Promise<string> {
    await this.console.until(/login: $/, bootTimeoutMs);
    this.type('root');
    await this.console.until(/# $/, bootTimeoutMs);
    // A login says `running` only when the last job of the boot has ended.
    this.type('systemctl is-system-running --wait; stty -echo; PS1=; echo begin');
    const said = await this.console.until(/\nbegin\r?\n/, bootTimeoutMs);
    return /^(running|degraded|maintenance)\r?$/m.exec(said)?.[1] ?? 'unknown';
  }

  /** Runs a line of shell after {@link boot}; answers what it printed. */
  async sh(line: string, timeoutMs: number): Promise<string> {
    this.type(`${line}; echo plain-ended`);
    const said = await this.console.until(/(^|\n)plain-ended\r?\n/, timeoutMs);
    return said.slice(0, said.lastIndexOf('plain-ended')).replaceAll('\r', '');
  }

  /** A line on the console. */
  type(line: string): void {
    this.#qemu.stdin?.write(`${line}\n`);
  }

  /** Ends it, as pulling the plug does. */
  async close(): Promise<void> {
    if (this.#qemu.exitCode !== null || this.#qemu.signalCode !== null) return;
    const ended = new Promise((resolve) => this.#qemu.once('exit', resolve));
    this.#qemu.kill('SIGKILL');
    await ended;
  }
}

function buildArguments(spec: PlainSpec): string[] {
  const clock = spec.kvm ? '' : ` ${emulatedClock(spec.guest)}`;
  return [
    ...['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-machine', 'microvm'],
    // The product's emulated processor and clock (packages/vmm/src/qemu/argv.ts).
    ...(spec.kvm
      ? ['-accel', 'kvm', '-cpu', 'host']
      : ['-accel', 'tcg', '-cpu', 'max,erms=off,fsrm=off,fzrm=off,fsrs=off']),
    ...['-smp', String(spec.vcpus), '-m', `${spec.memoryMiB}M`],
    // The package's kernel. Its header alone is changed (tools/guest-assets/build.sh says why microvm needs that).
    ...['-kernel', join(spec.guest, 'vmlinuz'), '-initrd', spec.initrd],
    ...['-append', `root=/dev/vda rw console=ttyS0 quiet panic=-1 reboot=t${clock} net.ifnames=0`],
    ...['-serial', 'stdio'],
    ...spec.disks.flatMap(({ id, format, path }) => [
      '-blockdev',
      `driver=${format},node-name=${id},file.driver=file,file.filename=${path}${format === 'qcow2' ? ',discard=unmap' : ''}`,
      '-device',
      `virtio-blk-device,drive=${id}`,
    ]),
    '-netdev',
    spec.tap
      ? `tap,id=net0,ifname=${spec.tap.name},script=no,downscript=no,vhost=off`
      : 'user,id=net0,ipv6=off',
    ...['-device', 'virtio-net-device,netdev=net0,mac=52:54:00:12:34:56'],
    ...['-device', 'virtio-rng-device'],
    ...(spec.qmp ? ['-qmp', `unix:${spec.qmp},server=on,wait=off`] : []),
  ];
}

function emulatedClock(guest: string): string {
  const tscKhz = execFileSync(join(guest, 'measure-tsc'), { encoding: 'utf8' }).trim();
  return `tsc_early_khz=${tscKhz} tsc=reliable mitigations=off`;
}

/** Output of the serial console, kept in a file, with waiting for a text at its end. */
class SerialConsole {
  #text = '';
  #wake = () => {};
  #ended = false;

  constructor(child: ChildProcess, log: string) {
    const file = createWriteStream(log);
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      file.write(text);
      this.#text = (this.#text + text).slice(-4096);
      this.#wake();
    });
    child.once('exit', () => {
      this.#ended = true;
      file.end();
      this.#wake();
    });
  }

  /** Waits until the output matches, answers it (its last 4096 characters) and forgets it. */
  async until(pattern: RegExp, timeoutMs: number): Promise<string> {
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
    const said = this.#text;
    this.#text = '';
    return said;
  }
}

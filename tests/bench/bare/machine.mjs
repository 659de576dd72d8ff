// The bare mechanism: QEMU with the product's devices and a minimal agent, a template, machines restored
// from it. No product code; what it takes from the product's build is the kernel, its modules and the rate
// of the time stamp counter (.cache/guest). Every script in this folder works inside `withBare`.
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connectUnix, onLines, Qmp } from './qmp.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, '../../..');
const guest = path.join(root, '.cache/guest');
const cache = path.join(root, '.cache/bench');

/** Size that each machine's disk is given, as the product's default. */
const diskBytes = 5 * 1024 ** 3;

/**
 * What all bare figures start from: agents built, a template of this shape and agent, a rootfs file.
 * `agent` is `line` (agent.c, lines on the ctl port) or `h2` (HTTP/2 on the data port).
 */
async function openBare({ agent = 'line', memoryMiB = 1024, accelerator = 'tcg' } = {}) {
  mkdirSync(cache, { recursive: true });
  const initramfs = buildInitramfs(agent);
  const host = {
    memoryMiB,
    accelerator,
    tscKhz: execFileSync(path.join(guest, 'measure-tsc'), { encoding: 'utf8' }).trim(),
  };
  const folder = mkdtempSync(path.join(tmpdir(), 'sandlot-bare-'));
  const template = { memory: path.join(folder, 'template.mem'), state: path.join(folder, 'template.state') };
  const bare = {
    agent,
    host,
    folder,
    template,
    initramfs,
    rootfs: buildRootfs(),
    machines: new Set(),
    count: 0,
  };
  try {
    await buildTemplate(bare);
  } catch (error) {
    await closeBare(bare);
    throw error;
  }
  return bare;
}

/** Ends every machine and removes every file. */
async function closeBare(bare) {
  await Promise.all([...bare.machines].map(endMachine));
  rmSync(bare.folder, { recursive: true, force: true });
}

/** Runs `work` with the bare mechanism and takes it down again, whatever happens. */
export async function withBare(options, work) {
  const bare = await openBare(options);
  try {
    return await work(bare);
  } finally {
    await closeBare(bare);
  }
}

/** Parses `--name value` arguments of a script. */
export function readArguments(defaults) {
  const given = Object.fromEntries(
    process.argv
      .slice(2)
      .flatMap((word, index, all) => (word.startsWith('--') ? [[word.slice(2), all[index + 1]]] : [])),
  );
  const numbers = Object.entries(defaults).map(([name, value]) => [
    name,
    given[name] === undefined ? value : typeof value === 'number' ? Number(given[name]) : given[name],
  ]);
  return Object.fromEntries(numbers);
}

/** The value below which this part of the sample lies. */
export function quantile(sample, part) {
  const sorted = [...sample].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
}

/** QEMU's arguments: the product's devices in the product's order. */
function buildArguments(bare, files, from) {
  const { host } = bare;
  const acceleration =
    host.accelerator === 'kvm'
      ? ['-accel', 'kvm', '-cpu', 'host']
      : ['-accel', 'tcg', '-cpu', 'max,erms=off,fsrm=off,fzrm=off,fsrs=off'];
  const memory = from ? 'share=off,readonly=on,rom=off' : 'share=on';
  const clock =
    host.accelerator === 'kvm' ? '' : ` tsc_early_khz=${host.tscKhz} tsc=reliable mitigations=off`;
  const kernel = path.join(guest, existsSync(path.join(guest, 'vmlinux')) ? 'vmlinux' : 'vmlinuz');
  const disk = from
    ? `driver=qcow2,node-name=disk,cache.no-flush=on,file.driver=file,file.filename=${files.overlay}`
    : 'driver=null-co,node-name=disk,size=1048576,read-zeroes=on';
  return [
    ...['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
    ...['-machine', 'microvm,memory-backend=ram0', ...acceleration, '-smp', '1', '-m', `${host.memoryMiB}M`],
    ...[
      '-object',
      `memory-backend-file,id=ram0,size=${host.memoryMiB}M,mem-path=${(from ?? bare.template).memory},${memory}`,
    ],
    ...(from
      ? ['-incoming', 'defer', '-global', 'migration.send-configuration=off', '-serial', 'null']
      : [
          '-kernel',
          kernel,
          '-initrd',
          bare.initramfs,
          '-append',
          `console=ttyS0 quiet panic=-1 reboot=t${clock}`,
        ]),
    ...(from ? [] : ['-serial', `file:${files.serial}`]),
    ...['-device', 'virtio-serial-device'],
    ...[
      '-chardev',
      `socket,id=c_ctl,path=${files.ctl},server=on,wait=off`,
      '-device',
      'virtserialport,chardev=c_ctl,name=ctl',
    ],
    ...[
      '-chardev',
      `socket,id=c_data,path=${files.data},server=on,wait=off`,
      '-device',
      'virtserialport,chardev=c_data,name=data',
    ],
    ...['-blockdev', disk, '-device', 'virtio-blk-device,drive=disk'],
    ...[
      '-blockdev',
      `driver=raw,node-name=modules,read-only=on,file.driver=file,file.filename=${guest}/modules.ext4`,
    ],
    ...['-device', 'virtio-blk-device,drive=modules'],
    ...[
      '-netdev',
      'user,id=net0,restrict=on',
      '-device',
      'virtio-net-device,netdev=net0,mac=52:54:00:12:34:56',
    ],
    ...['-device', 'virtio-rng-device', '-qmp', `unix:${files.qmp},server=on,wait=off`],
  ];
}

/** `from` as of `restore`; without it a machine boots. */
function startQemu(bare, name, from) {
  const file = (kind) => path.join(bare.folder, `${name}.${kind}`);
  const files = Object.fromEntries(
    ['ctl', 'data', 'qmp', 'overlay', 'serial', 'log'].map((kind) => [kind, file(kind)]),
  );
  if (from?.overlay) files.overlay = from.overlay;
  else if (from) createOverlay(files.overlay, from.below, from.format);
  const log = openSync(files.log, 'w');
  const child = spawn('qemu-system-x86_64', buildArguments(bare, files, from), {
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  const machine = {
    bare,
    name,
    files,
    from,
    child,
    sockets: [],
    disk: { node: 'disk', path: files.overlay },
  };
  machine.ended = new Promise((resolve) => child.once('exit', resolve));
  bare.machines.add(machine);
  return machine;
}

async function buildTemplate(bare) {
  const machine = startQemu(bare, 'template', undefined);
  machine.qmp = await Qmp.open(machine.files.qmp);
  const deadline = performance.now() + 120_000;
  const serial = () => (existsSync(machine.files.serial) ? readFileSync(machine.files.serial, 'latin1') : '');
  while (!serial().includes('bare agent waits')) {
    if (performance.now() > deadline)
      throw new Error(`the template did not boot in two minutes: ${serial().slice(-500)}`);
    await sleep(10);
  }
  // The agent is about to block: let it.
  await sleep(200);
  await machine.qmp.run('stop');
  await machine.qmp.run('xen-save-devices-state', { filename: bare.template.state });
  await endMachine(machine);
}

/** An empty disk above another, which is not looked at: a machine may be writing to it. */
export function createOverlay(file, below, format) {
  const above = ['-u', '-b', below, '-F', format];
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...above, file, String(diskBytes)]);
}

/**
 * A new machine, running; nothing was asked of its agent yet. `from`: the files `memory` and `state` that it goes on from, and either the
 * `overlay` that it had or what its new one stands above, `below` of a `format`. Without it, the template.
 */
export async function restore(bare, from) {
  const { memory, state } = from ?? bare.template;
  const source = from ?? { memory, below: bare.rootfs, format: 'raw' };
  const machine = startQemu(bare, `m${bare.count++}`, source);
  machine.qmp = await Qmp.open(machine.files.qmp);
  await machine.qmp.run('migrate-set-capabilities', {
    capabilities: [{ capability: 'x-ignore-shared', state: true }],
  });
  await machine.qmp.run('migrate-incoming', { uri: `file:${state}` });
  while ((await machine.qmp.run('query-status')).status === 'inmigrate') await sleep(1);
  // The template's placeholder was 1 MiB: without this the guest keeps that size.
  if (!from) await machine.qmp.run('block_resize', { 'node-name': 'disk', size: diskBytes });
  await machine.qmp.run('cont');
  return machine;
}

/** Connects one of the machine's ports. */
export async function connectPort(machine, name) {
  const socket = await connectUnix(machine.files[name]);
  socket.on('error', () => {});
  machine.sockets.push(socket);
  return socket;
}

/** Lines to and from the line agent. */
export async function connectLines(machine) {
  const socket = await connectPort(machine, 'ctl');
  const lines = [];
  let wake = () => {};
  onLines(socket, (line) => {
    lines.push(line);
    wake();
  });
  /** Sends a line and answers all lines up to the one that `isLast` accepts. */
  return async (line, isLast = () => true, timeoutMs = 60_000) => {
    const got = [];
    const deadline = performance.now() + timeoutMs;
    socket.write(`${line}\n`);
    for (;;) {
      while (lines.length === 0) {
        const left = deadline - performance.now();
        if (left <= 0) throw new Error(`${machine.name} did not answer ${line} in ${timeoutMs} ms`);
        const timer = setTimeout(() => wake(), left);
        await new Promise((resolve) => {
          wake = resolve;
        });
        clearTimeout(timer);
      }
      got.push(lines.shift());
      if (isLast(got.at(-1))) return got;
    }
  };
}

/** True for the line that ends an exec. */
export const isExit = (line) => line.startsWith('EXIT ');

/** Mounts the root and runs a shell line; throws when it does not exit with 0. */
export async function mountAndExec(ask, line) {
  const mounted = await ask('MOUNT');
  if (mounted[0] !== 'MOUNT ok') throw new Error(`bare mount failed: ${mounted[0]}`);
  await exec(ask, line);
}

/** Runs a shell line in a root that is mounted; throws when it does not exit with 0. */
export async function exec(ask, line) {
  const output = await ask(`EXEC ${line}`, isExit);
  if (output.at(-1) !== 'EXIT 0') throw new Error(`bare exec failed: ${output.join(' | ')}`);
}

/** Ends a machine at once and removes its disk. */
export async function endMachine(machine) {
  await endKeepingDisk(machine);
  rmSync(machine.files.overlay, { force: true });
}

/** Ends a machine at once; another can go on with its disk. */
export async function endKeepingDisk(machine) {
  for (const socket of machine.sockets) socket.destroy();
  machine.child.kill('SIGKILL');
  await machine.ended;
  machine.qmp?.close();
  machine.bare.machines.delete(machine);
  const { overlay, ...others } = machine.files;
  for (const file of Object.values(others)) rmSync(file, { force: true });
}

/** Builds the agent and packs it with the product's boot modules; kept by content. */
function buildInitramfs(agent) {
  const sources =
    agent === 'line'
      ? ['agent.c']
      : ['h2-agent/Cargo.lock', ...['main', 'port', 'system'].map((name) => `h2-agent/src/${name}.rs`)];
  const hash = createHash('sha256').update(readFileSync(path.join(guest, 'initramfs.cpio')));
  for (const source of sources) hash.update(readFileSync(path.join(here, source)));
  const out = path.join(cache, `${agent}-${hash.digest('hex').slice(0, 16)}.cpio`);
  if (existsSync(out)) return out;
  const work = mkdtempSync(path.join(cache, 'initramfs-'));
  try {
    execFileSync('cpio', ['-id', '--quiet', 'modules*'], {
      cwd: work,
      input: readFileSync(path.join(guest, 'initramfs.cpio')),
    });
    if (agent === 'line') {
      execFileSync('cc', ['-static', '-O2', '-o', path.join(work, 'init'), path.join(here, 'agent.c')]);
    } else {
      const target = path.join(cache, 'target');
      execFileSync('cargo', ['build', '--release', '--locked', '--quiet'], {
        cwd: path.join(here, 'h2-agent'),
        env: { ...process.env, CARGO_TARGET_DIR: target },
        stdio: ['ignore', 'inherit', 'inherit'],
      });
      execFileSync('cp', [
        path.join(target, 'x86_64-unknown-linux-gnu/release/bare-h2-agent'),
        path.join(work, 'init'),
      ]);
    }
    const names = execFileSync('find', ['.', '-mindepth', '1', '-print0'], { cwd: work });
    const packed = execFileSync('cpio', ['-0', '-o', '-H', 'newc', '-R', '0:0', '--quiet'], {
      cwd: work,
      input: names,
      maxBuffer: 256 * 1024 ** 2,
    });
    execFileSync('tee', [`${out}.new`], { input: packed, stdio: ['pipe', 'ignore', 'inherit'] });
    renameSync(`${out}.new`, out);
    return out;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** The layer of an uncompressed docker-archive with one layer, as a file of its own. */
export function extractLayer() {
  const archive = path.join(root, '.cache/images/python-3.11-slim.tar');
  const out = path.join(cache, 'python-layer.tar');
  if (existsSync(out) && statSync(out).mtimeMs > statSync(archive).mtimeMs) return out;
  const target = openSync(`${out}.new`, 'w');
  execFileSync('tar', ['-xOf', archive, '--wildcards', '*/layer.tar'], {
    stdio: ['ignore', target, 'inherit'],
  });
  closeSync(target);
  renameSync(`${out}.new`, out);
  return out;
}

/** Makes a file system of a tar by `mke2fs -d`, nothing else. */
export function makeFilesystem(tar, out, mebibytes) {
  rmSync(out, { force: true });
  execFileSync('truncate', ['-s', `${mebibytes}M`, out]);
  execFileSync(
    'mke2fs',
    ['-q', '-F', '-t', 'ext4', '-b', '4096', '-E', 'lazy_itable_init=0', '-d', tar, out],
    {
      env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` },
    },
  );
}

function buildRootfs() {
  const layer = extractLayer();
  const out = path.join(cache, 'python.ext4');
  if (existsSync(out) && statSync(out).mtimeMs > statSync(layer).mtimeMs) return out;
  makeFilesystem(layer, `${out}.new`, 512);
  renameSync(`${out}.new`, out);
  return out;
}

/** runc and gVisor: the same bundle (Docker's defaults) on an overlay over the unpacked image. */
import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { bundleConfig } from './bundle.js';
import { guestFolder, type Inputs, type PlaceResult, ResultLines, runnerArgv } from './place.js';

/** A container runtime with runc's command line. */
export interface Runtime {
  name: string;
  binary: string;
  about: string;
  /** Docker's seccomp profile in the form of the OCI; a runtime with a kernel of its own takes none. */
  seccomp: object | undefined;
}

/** Runs the probes in a container and takes everything away again. */
export async function runContainer(inputs: Inputs, runtime: Runtime): Promise<PlaceResult> {
  const base = unpackImage(inputs);
  const folder = mkdtempSync(join(inputs.cache, 'container-'));
  const [upper, work, rootfs] = ['upper', 'work', 'rootfs'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  for (const path of [upper, work, rootfs]) mkdirSync(path);
  const id = `fidelity-${process.pid}`;
  const network = openNetwork();
  const state = join(folder, 'state');
  execFileSync('mount', [
    '-t',
    'overlay',
    'overlay',
    '-o',
    `lowerdir=${base},upperdir=${upper},workdir=${work}`,
    rootfs,
  ]);
  try {
    cpSync(inputs.kit, join(rootfs, guestFolder), { recursive: true });
    chmodSync(folder, 0o711);
    for (const [name, text] of [
      ['hostname', 'fidelity\n'],
      ['hosts', '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tfidelity\n'],
      ['resolv.conf', 'nameserver 10.0.2.3\n'],
    ] as const)
      writeFileSync(join(folder, name), text);
    const config = bundleConfig({
      folder,
      argv: runnerArgv(inputs),
      seccomp: runtime.seccomp,
      memoryMiB: inputs.memoryMiB,
      network: `/run/netns/${network.inside}`,
    });
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    const child = spawn(runtime.binary, ['--root', state, 'run', '--bundle', folder, id], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), inputs.timeoutMs);
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors = (errors + text).slice(-4000);
    });
    const ended = new Promise((resolve) => child.once('close', resolve));
    const lines = new ResultLines();
    await lines.read(child.stdout);
    await ended;
    clearTimeout(timer);
    if (!lines.ended && lines.values.size === 0) throw new Error(`${runtime.name} ran nothing: ${errors}`);
    return { name: runtime.name, about: runtime.about, values: lines.values, times: lines.times };
  } finally {
    try {
      execFileSync(runtime.binary, ['--root', state, 'delete', '--force', id], { stdio: 'ignore' });
    } catch {
      // It has ended and is forgotten already.
    }
    network.close();
    execFileSync('umount', ['-R', '-l', rootfs]);
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The addresses of the plain VM, and a gateway that answers pings, in namespaces of their own. */
function openNetwork(): { inside: string; close: () => void } {
  const [inside, gateway] = [`slfid${process.pid}a`, `slfid${process.pid}b`];
  const ip = (...args: string[]) => execFileSync('ip', args);
  const close = () => {
    for (const name of [inside, gateway])
      if (existsSync(`/run/netns/${name}`)) execFileSync('ip', ['netns', 'delete', name]);
  };
  try {
    for (const name of [inside, gateway]) {
      ip('netns', 'add', name);
      ip('-n', name, 'link', 'set', 'lo', 'up');
    }
    ip('-n', gateway, 'link', 'add', 'gw', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', inside);
    ip('-n', gateway, 'addr', 'add', '10.0.2.2/24', 'dev', 'gw');
    ip('-n', gateway, 'link', 'set', 'gw', 'up');
    ip('-n', inside, 'link', 'set', 'eth0', 'address', '52:54:00:12:34:56', 'up');
    ip('-n', inside, 'addr', 'add', '10.0.2.15/24', 'dev', 'eth0');
    ip('-n', inside, 'route', 'add', 'default', 'via', '10.0.2.2');
  } catch (error) {
    close();
    throw error;
  }
  return { inside, close };
}

function unpackImage(inputs: Inputs): string {
  const folder = join(inputs.cache, `rootfs-${inputs.imageKey}`);
  if (existsSync(folder)) return folder;
  inputs.say('containers: unpacking the image');
  rmSync(`${folder}.new`, { recursive: true, force: true });
  mkdirSync(`${folder}.new`);
  execFileSync('tar', [
    '--xattrs',
    '--xattrs-include=*',
    '--numeric-owner',
    '-xpf',
    inputs.layer,
    '-C',
    `${folder}.new`,
  ]);
  renameSync(`${folder}.new`, folder);
  return folder;
}

// The bare save of a running machine: memory, devices and disk of one instant by plain QMP and a page copier of its own, and
// machines made of it. What can be done while the guest runs is done before. Used by copies.mjs.
import { execFile, execFileSync, spawn } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createOverlay, endKeepingDisk } from './machine.mjs';

const run = promisify(execFile);
const source = fileURLToPath(new URL('copy-pages.c', import.meta.url));

/**
 * Saves a machine that goes on, with a new disk above the one that is saved. Answers the files, which `restore` takes, how long
 * it stood still, and the bytes that were its own.
 */
export async function saveAndGoOn(machine) {
  const { bare, qmp, disk } = machine;
  const { files, copier } = await prepare(machine);
  const node = `disk-${bare.count}`;
  const next = path.join(bare.folder, `${machine.name}.${node}`);
  createOverlay(next, disk.path, 'qcow2');
  const file = { driver: 'file', filename: next };
  const cache = { 'no-flush': true };
  await qmp.run('blockdev-add', { driver: 'qcow2', 'node-name': node, cache, file, backing: null });
  await qmp.run('stop');
  const stillFrom = performance.now();
  await qmp.run('xen-save-devices-state', { filename: files.state, live: false });
  const dirtyBytes = await copier();
  await qmp.run('blockdev-snapshot', { node: disk.node, overlay: node });
  await qmp.run('cont');
  const stillMs = performance.now() - stillFrom;
  machine.files[node] = next;
  machine.disk = { node, path: next };
  return { from: { ...files, below: disk.path, format: 'qcow2' }, stillMs, dirtyBytes };
}

/** Saves a machine and ends it. Answers the files, which `restore` takes; its disk is among them. */
export async function saveAndEnd(machine) {
  const { files, copier } = await prepare(machine);
  await machine.qmp.run('stop');
  await machine.qmp.run('xen-save-devices-state', { filename: files.state, live: false });
  await copier();
  await endKeepingDisk(machine);
  return { ...files, overlay: machine.disk.path };
}

/** Removes the memory of a save; its disk may lie below others. */
export function removeSaved({ memory, state }) {
  for (const file of [memory, state]) rmSync(file, { force: true });
}

/** What is done while the guest still runs. */
async function prepare({ bare, from, child }) {
  const file = (kind) => path.join(bare.folder, `save${bare.count}.${kind}`);
  bare.count++;
  const files = { memory: file('memory'), state: file('state') };
  await run('cp', ['--reflink=auto', '--sparse=auto', from.memory, files.memory]);
  const copier = startCopier(bare, [String(child.pid), from.memory, files.memory]);
  return { files, copier };
}

/** Starts the copier; the function that it answers lets it go and answers the bytes. */
function startCopier(bare, words) {
  const program = path.join(bare.folder, 'copy-pages');
  if (!existsSync(program)) execFileSync('cc', ['-O2', '-o', program, source]);
  const copier = spawn(program, words, { stdio: ['pipe', 'pipe', 'inherit'] });
  let said = '';
  copier.stdout.setEncoding('utf8').on('data', (text) => {
    said += text;
  });
  const ended = new Promise((resolve, reject) => {
    copier.once('error', reject);
    copier.once('close', resolve);
  });
  return async () => {
    copier.stdin.end('\n');
    const code = await ended;
    if (code !== 0) throw new Error(`the bare page copier ended with ${code}`);
    return Number(said);
  };
}

// Group `start`: a restore through the VMM driver, and a create through the API, each beside the bare one.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { quantile, withBare } from '../bare/machine.mjs';
import { measureStart } from '../bare/start.mjs';
import { timeFirstExec } from '../product/server.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
const rounds = 20;

export function measure({ server, image, accelerator, onFigure }) {
  return withBare({ accelerator }, async (bare) => {
    const driver = await openDriver(bare.rootfs, accelerator);
    try {
      const seen = await measureRounds(bare, driver, server, image);
      const p50 = (name) => quantile(seen[name], 0.5);
      onFigure('restore-first-answer', { product: p50('answer'), bare: p50('bareAnswer') });
      onFigure('restore-first-sync', { product: p50('sync'), bare: p50('bareAnswer') });
      onFigure('create-first-exec', { product: p50('create'), bare: p50('bareExec') });
    } finally {
      await driver.close();
    }
  });
}

async function measureRounds(bare, driver, server, image) {
  const seen = { answer: [], sync: [], create: [], bareAnswer: [], bareExec: [] };
  // Interleaved, so that a busy moment of the host hits all alike.
  for (let round = 0; round < rounds; round++) {
    const { firstAnswerMs, firstExecMs } = await measureStart(bare);
    seen.bareAnswer.push(firstAnswerMs);
    seen.bareExec.push(firstExecMs);
    const { syncMs, answerMs } = await driver.start();
    seen.sync.push(syncMs);
    seen.answer.push(answerMs);
    const { id, ms } = await timeFirstExec(server, image);
    seen.create.push(ms);
    await server.remove(id);
  }
  return seen;
}

/** The product's VMM driver with a template of its own, warmed as the node agent warms its templates. */
async function openDriver(rootfs, accelerator) {
  const { createQemuDriver } = await import(path.join(root, 'packages/vmm/dist/index.js'));
  const { GuestClient } = await import(path.join(root, 'packages/node-agent/dist/guest/guest-client.js'));
  const folder = mkdtempSync(path.join(tmpdir(), 'slb-'));
  const under = (name) => {
    const made = path.join(folder, name);
    mkdirSync(made);
    return made;
  };
  const driver = createQemuDriver({
    assets: path.join(root, '.cache/guest'),
    stateFolder: under('state'),
    kvm: accelerator === 'kvm' ? 'auto' : 'never',
  });
  const close = async () => {
    await driver.close();
    rmSync(folder, { recursive: true, force: true });
  };
  const signal = AbortSignal.timeout(480_000);
  const network = { kind: 'user', restricted: true };
  const request = { folder: under('template'), shape: { vcpus: 1, memoryMiB: 1024 }, network };
  const warmed = { ...request, warm: (ports) => warm(GuestClient, ports) };
  const template = await driver.buildTemplate(warmed, signal).catch(async (error) => {
    await close();
    throw error;
  });
  let count = 0;
  return {
    async start() {
      const id = `m${count++}`;
      const machineFolder = under(id);
      const begin = performance.now();
      const disk = { backingPath: rootfs, sizeBytes: 5 * 1024 ** 3 };
      const machine = await driver.restore({ id, folder: machineFolder, template, disk, network }, signal);
      const guest = new GuestClient(machine.ports);
      await guest.connect(30_000);
      const syncMs = performance.now() - begin;
      await guest.health();
      const answerMs = performance.now() - begin;
      guest.close();
      await machine.end();
      return { syncMs, answerMs };
    },
    close,
  };
}

/** What the node agent does with a template before it is frozen (templates/template-store.ts). */
async function warm(GuestClient, ports) {
  for (let round = 0; round < 2; round++) {
    const guest = new GuestClient(ports);
    await guest.connect(120_000);
    await guest.warm();
    for (let call = 0; call < 3; call++) await guest.health();
    guest.close();
    // The agent notices that the host is gone before the machine is frozen.
    await sleep(100);
  }
}

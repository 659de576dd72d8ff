/**
 * A named processor lets a snapshot move: one host saves a machine, another restores it. tools/test-kvm.sh boots its machine
 * twice, the second time with another processor, and gives both one disk at SANDLOT_KVM_EXCHANGE: whoever finds nothing
 * there saves. Without that, this host is both.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createQemuDriver, type Machine, readSnapshot, type Snapshot, type VmmDriver } from '@sandlot/vmm';
import { callGuest } from '@sandlot/vmm/conformance/ping-guest';
import { afterAll, describe, expect, it } from 'vitest';
import { guestAssets } from '../driver/checkout.js';
import { makeStateFolder } from './state-folder.js';

/** Runs on every KVM, also the emulated one, which has no virtual 8086 mode; real hosts want one that can do more. */
const cpuModel = 'qemu64-v1';
const shape = { vcpus: 1, memoryMiB: 256 };
const network = { kind: 'user', restricted: true } as const;
const sizeBytes = 64 * 1024 * 1024;
const never = new AbortController().signal;
const kept = '/dev/shm/kept';

const own = mkdtempSync(join(tmpdir(), 'sandlot-move-'));
const exchange = process.env['SANDLOT_KVM_EXCHANGE'] ?? join(own, 'exchange');
const savedAlready = existsSync(join(exchange, 'named'));
const processor = () => /^model name\s*: (.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1];
const state = makeStateFolder();
const drivers: VmmDriver[] = [];
const machines: Machine[] = [];
afterAll(async () => {
  for (const machine of machines) await machine.end();
  for (const driver of drivers) await driver.close();
  state.close();
  rmSync(own, { recursive: true, force: true });
});

function makeDriver(model: string): VmmDriver {
  const driver = createQemuDriver({ assets: guestAssets, stateFolder: state.of(model), cpuModel: model });
  drivers.push(driver);
  return driver;
}

function makeFolder(path: string): string {
  mkdirSync(path, { recursive: true });
  return path;
}

/** Path of a disk that both hosts find under this name. */
function makeDisk(): string {
  const backingPath = join(makeFolder(exchange), 'rootfs');
  const files = makeFolder(join(own, 'files', 'dev'));
  if (!existsSync(backingPath))
    execFileSync('mke2fs', ['-q', '-t', 'ext4', '-d', join(files, '..'), backingPath, `${sizeBytes / 1024}`]);
  return backingPath;
}

/** Saves a machine of a processor, with a word in its memory, into the exchange. */
async function save(model: string, name: string): Promise<void> {
  const driver = makeDriver(model);
  const template = await driver.buildTemplate(
    {
      folder: makeFolder(join(own, `template-${name}`)),
      shape,
      network,
      warm: async (ports, signal) => void (await callGuest(ports, 'GET', '/health', undefined, signal)),
    },
    never,
  );
  const disk = { backingPath: makeDisk(), sizeBytes };
  // A save links the machine's disk, so both lie on one file system.
  const folder = makeFolder(join(exchange, `m-${name}`));
  const machine = await driver.restore({ id: name, folder, from: template, disk, network }, never);
  machines.push(machine);
  const init = {
    ...{ sandboxId: 's', timeUnixMs: Date.now(), hostname: 'one', machineId: '0'.repeat(32) },
    ...{ entropyBase64: randomBytes(64).toString('base64'), resolvConf: '', env: {}, secrets: {} },
    image: { env: [], user: '', workingDir: '', entrypoint: [], cmd: [] },
    growRoot: false,
  };
  expect((await callGuest(machine.ports, 'POST', '/init', JSON.stringify(init))).status).toBe(200);
  expect((await callGuest(machine.ports, 'PUT', `/files?path=${kept}`, `of ${name}`)).status).toBe(200);
  await machine.snapshotting!.save({ folder: makeFolder(join(exchange, name)), after: 'go on' }, never);
}

async function find(name: string): Promise<Snapshot> {
  const snapshot = await readSnapshot(join(exchange, name));
  if (!snapshot) throw new Error(`there is no snapshot ${name} in ${exchange}`);
  return snapshot;
}

describe.skipIf(savedAlready)('the first host', () => {
  it('saves a machine of a named processor, and one of its own', async () => {
    await save(cpuModel, 'named');
    await save('host', 'own');
    writeFileSync(join(exchange, 'processor'), `${processor()}`);
    execFileSync('sync');
  });
});

const isOther = savedAlready || process.env['SANDLOT_KVM_EXCHANGE'] === undefined;
describe.skipIf(!isOther)('another host of the family', () => {
  it('restores the machine of the named processor', async () => {
    if (savedAlready) expect(processor()).not.toBe(readFileSync(join(exchange, 'processor'), 'utf8'));
    const from = await find('named');
    const disk = { ...from.disk, sizeBytes };
    const folder = makeFolder(join(own, 'again'));
    const machine = await makeDriver(cpuModel).restore({ id: 'again', folder, from, disk, network }, never);
    machines.push(machine);
    expect((await callGuest(machine.ports, 'GET', `/files?path=${kept}`)).body).toBe('of named');
  });

  it.skipIf(!savedAlready)("refuses one of the first host's own processor", async () => {
    const from = await find('own');
    const disk = { ...from.disk, sizeBytes };
    const folder = makeFolder(join(own, 'refused'));
    const restored = makeDriver('host').restore({ id: 'refused', folder, from, disk, network }, never);
    await expect(restored).rejects.toMatchObject({ code: 'bad-snapshot' });
  });
});

it('a processor that this host does not have is no reason to run without a part of it', async () => {
  const { accelerator, reason } = await makeDriver('KnightsMill-v1').describe();
  expect(accelerator).toBe('tcg');
  expect(reason).toContain('KnightsMill-v1,enforce');
});

/**
 * One machine that is saved with its memory while transfers run, and restored from there as often as a
 * test likes, at moments that the driver's own snapshots do not offer. Used by
 * `snapshot-story.ts`.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { GuestClient } from '@sandlot/node-agent';
import { createQemuDriver, type GuestPorts, type Machine, type Template, type VmmDriver } from '@sandlot/vmm';
import { QmpClient } from '@sandlot/vmm/qemu/qmp-client';
import { guestAssets, requireWholeHost } from './checkout.js';
import { staticProgram } from './test-images.js';

/** Bytes in the machine's file `/source`, and the byte they are. */
export const sourceFile = { bytes: 8 * 2 ** 20, mark: 0xee };

/** `/mark BYTE COUNT` prints that byte so often, for ever if COUNT is 0. */
const markProgram = `
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
  static char buffer[65536];
  long left = atol(argv[2]), endless = left == 0;
  memset(buffer, atoi(argv[1]), sizeof buffer);
  while (endless || left > 0) {
    ssize_t done = write(1, buffer, endless || left > (long)sizeof buffer ? sizeof buffer : left);
    if (done < 0) return 1;
    left -= done;
  }
  return 0;
}
`;

const never = new AbortController().signal;
const network = { kind: 'user', restricted: true } as const;
const diskBytes = 64 * 2 ** 20;

/** See the file's head. */
export class SavedMachine {
  readonly #folder = mkdtempSync('/tmp/slt-');
  readonly #driver: VmmDriver;
  #template: Template | undefined;
  #machine: Machine | undefined;
  #pid: number | undefined;
  #child: ChildProcess | undefined;
  #argv: string[] = [];

  private constructor() {
    mkdirSync(join(this.#folder, 'state'));
    this.#driver = createQemuDriver({
      assets: guestAssets,
      stateFolder: join(this.#folder, 'state'),
      kvm: 'never',
    });
  }

  /** Builds template and disk. */
  static async open(): Promise<SavedMachine> {
    requireWholeHost();
    const saved = new SavedMachine();
    try {
      saved.#makeDisk();
      saved.#template = await saved.#driver.buildTemplate(
        {
          folder: join(saved.#folder, 'template'),
          shape: { vcpus: 1, memoryMiB: 256 },
          network,
          warm: async (ports, signal) => {
            const guest = new GuestClient(ports);
            await guest.connect(60_000, signal);
            guest.close();
          },
        },
        never,
      );
      return saved;
    } catch (cause) {
      await saved.close();
      throw cause;
    }
  }

  /** A running machine with its root mounted, and a client that is connected to it. */
  async start(): Promise<GuestClient> {
    const folder = join(this.#folder, 'machine');
    await this.#endMachine();
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    this.#machine = await this.#driver.restore(
      {
        id: 'saved',
        folder,
        from: this.#template as Template,
        disk: { backingPath: join(this.#folder, 'root.ext4'), sizeBytes: diskBytes },
        network,
      },
      never,
    );
    this.#pid = this.#machine.handle.pid;
    const guest = new GuestClient(this.#machine.ports);
    await guest.connect(60_000);
    await guest.init({
      sandboxId: 'saved',
      timeUnixMs: Date.now(),
      entropyBase64: randomBytes(64).toString('base64'),
      hostname: 'saved',
      machineId: randomBytes(16).toString('hex'),
      resolvConf: '',
      image: { env: [], user: '', workingDir: '/', entrypoint: [], cmd: [] },
      env: {},
      secrets: {},
      growRoot: false,
    });
    return guest;
  }

  /** Saves memory, devices and disk at this moment, whatever runs; then the machine is ended. */
  async save(): Promise<void> {
    const machine = this.#machine as Machine;
    this.#argv = readFileSync(`/proc/${machine.handle.pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
    // QEMU speaks to one at a time: the driver lets go of it first.
    machine.detach();
    const qmp = await QmpClient.connect(this.#path('machine/qmp.sock'), 10_000);
    try {
      await qmp.execute('stop');
      await qmp.execute('migrate-set-capabilities', {
        capabilities: [{ capability: 'x-ignore-shared', state: false }],
      });
      await qmp.execute('migrate', { uri: `file:${this.#path('saved.state')}` });
      for (let status = ''; status !== 'completed'; await pause(20)) {
        status = (await qmp.execute<{ status?: string }>('query-migrate')).status ?? '';
        if (status === 'failed') throw new Error('QEMU could not save the machine');
      }
    } finally {
      qmp.close();
    }
    await this.#endMachine();
    copyFileSync(this.#path('machine/overlay.qcow2'), this.#path('saved.qcow2'));
  }

  /**
   * The saved machine, running again. `connect` gets a client that connects before QEMU loads the state,
   * before its processors start, or after.
   */
  async restore(moment: 'before load' | 'before start' | 'after start'): Promise<GuestClient> {
    await this.#endMachine();
    for (const name of ['ctl.sock', 'data.sock', 'qmp.sock'])
      rmSync(this.#path(`machine/${name}`), { force: true });
    copyFileSync(this.#path('saved.qcow2'), this.#path('machine/overlay.qcow2'));
    this.#child = spawn(this.#argv[0] as string, this.#argv.slice(1), {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    this.#pid = this.#child.pid;
    const ports: GuestPorts = { ctl: this.#path('machine/ctl.sock'), data: this.#path('machine/data.sock') };
    const guest = new GuestClient(ports);
    const qmp = await QmpClient.connect(this.#path('machine/qmp.sock'), 10_000);
    let connected: Promise<void> | undefined;
    const connectAt = (now: typeof moment) => {
      if (now !== moment) return;
      connected = guest.connect(30_000);
      connected.catch(() => undefined);
    };
    try {
      connectAt('before load');
      await pause(moment === 'before load' ? 50 : 0);
      await qmp.execute('migrate-incoming', { uri: `file:${this.#path('saved.state')}` });
      for (let status = 'inmigrate'; status === 'inmigrate'; await pause(20))
        status = (await qmp.execute<{ status: string }>('query-status')).status;
      connectAt('before start');
      await pause(moment === 'before start' ? 50 : 0);
      await qmp.execute('cont');
      connectAt('after start');
    } finally {
      qmp.close();
    }
    await connected;
    return guest;
  }

  /** Ends and removes everything. */
  async close(): Promise<void> {
    await this.#endMachine();
    await this.#driver.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #path(name: string): string {
    return join(this.#folder, name);
  }

  async #endMachine(): Promise<void> {
    const pid = this.#pid;
    this.#pid = undefined;
    if (pid === undefined) return;
    const gone =
      this.#child?.pid === pid ? new Promise((resolve) => this.#child?.once('exit', resolve)) : undefined;
    process.kill(pid, 'SIGKILL');
    await gone;
    for (let tries = 0; tries < 500 && isAlive(pid); tries++) await pause(10);
  }

  #makeDisk(): void {
    const root = this.#path('root');
    mkdirSync(join(root, 't'), { recursive: true });
    writeFileSync(join(root, 'mark'), staticProgram(markProgram), { mode: 0o755 });
    writeFileSync(join(root, 'source'), Buffer.alloc(sourceFile.bytes, sourceFile.mark));
    execFileSync('mke2fs', ['-q', '-t', 'ext4', '-d', root, this.#path('root.ext4'), '64M'], {
      timeout: 60_000,
    });
    rmSync(root, { recursive: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

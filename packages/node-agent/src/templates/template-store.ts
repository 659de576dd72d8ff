/**
 * Templates by shape: built once, reused across restarts, at most {@link maxTemplates} kept. Used
 * by the template step of a start, and at start-up for the usual shapes.
 */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { GuestPorts, Shape, Template, VmmDriver } from '@sandlot/vmm';
import type { Logger } from 'pino';
import { GuestClient } from '../guest/guest-client.js';
import type { Networks } from '../network/network.js';

/** Each costs up to the memory of its shape on disk, sparse. */
const maxTemplates = 16;
/** A cold boot takes 3 s; many at once on software emulation take far longer. */
const buildTimeoutMs = 180_000;

interface Options {
  folder: string;
  driver: VmmDriver;
  networks: Networks;
  log: Logger;
}

/** The templates of one node. */
export class TemplateStore {
  readonly #building = new Map<string, Promise<Template>>();
  readonly #known = new Map<string, Template>();

  readonly #closing = new AbortController();

  constructor(private readonly options: Options) {}

  /** Ends builds that run; resolves when nothing of them is left. */
  async close(): Promise<void> {
    this.#closing.abort(new Error('the node agent is closing'));
    await Promise.allSettled(this.#building.values());
  }

  /** Removes half-built templates and those of other kernels, agents or versions. */
  async open(): Promise<void> {
    await mkdir(this.options.folder, { recursive: true, mode: 0o711 });
    const { fingerprint } = await this.options.driver.describe();
    for (const name of await readdir(this.options.folder)) {
      const template = await this.#read(name);
      if (template?.fingerprint !== fingerprint) {
        await rm(join(this.options.folder, name), { recursive: true, force: true });
      }
    }
  }

  /** True if a start would not have to wait for a build. */
  async isReady(shape: Shape): Promise<boolean> {
    const name = await this.#nameOf(shape);
    return this.#known.has(name) || (await this.#read(name)) !== undefined;
  }

  /** The template of a shape; built if there is none, once for all who wait. Throws VmmError. */
  async get(shape: Shape): Promise<Template> {
    const name = await this.#nameOf(shape);
    const known = this.#known.get(name) ?? (await this.#read(name));
    if (known) {
      this.#known.set(name, known);
      const now = new Date();
      await utimes(join(this.options.folder, name, 'sandlot.json'), now, now).catch(() => {});
      return known;
    }
    let building = this.#building.get(name);
    if (!building) {
      building = this.#build(name, shape).finally(() => this.#building.delete(name));
      this.#building.set(name, building);
    }
    return building;
  }

  async #nameOf(shape: Shape): Promise<string> {
    const { fingerprint } = await this.options.driver.describe();
    const key = JSON.stringify([fingerprint, this.options.networks.mode, shape.vcpus, shape.memoryMiB]);
    return createHash('sha256').update(key).digest('hex').slice(0, 16);
  }

  async #read(name: string): Promise<Template | undefined> {
    try {
      return JSON.parse(await readFile(join(this.options.folder, name, 'sandlot.json'), 'utf8')) as Template;
    } catch {
      return undefined;
    }
  }

  async #build(name: string, shape: Shape): Promise<Template> {
    const { driver, networks, log } = this.options;
    this.#closing.signal.throwIfAborted();
    const folder = join(this.options.folder, name);
    const startedMs = performance.now();
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true, mode: 0o711 });
    const network = await networks.acquire();
    try {
      const request = {
        folder,
        shape,
        network: network.machine,
        ...(network.runAs ? { runAs: network.runAs } : {}),
        warm: warmGuest,
      };
      const signal = AbortSignal.any([AbortSignal.timeout(buildTimeoutMs), this.#closing.signal]);
      const template = await driver.buildTemplate(request, signal);
      await writeFile(join(folder, 'sandlot.json.new'), JSON.stringify(template));
      await rename(join(folder, 'sandlot.json.new'), join(folder, 'sandlot.json'));
      this.#known.set(name, template);
      log.info({ shape, ms: Math.round(performance.now() - startedMs) }, 'template built');
      await this.#evict(name);
      return template;
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      throw error;
    } finally {
      await network.release();
    }
  }

  /** Least recently used first. Machines that run on an evicted template keep its memory file: it is mapped. */
  async #evict(keep: string): Promise<void> {
    const aged: { name: string; usedMs: number }[] = [];
    for (const name of await readdir(this.options.folder)) {
      const info = await stat(join(this.options.folder, name, 'sandlot.json')).catch(() => undefined);
      if (info && name !== keep) aged.push({ name, usedMs: info.mtimeMs });
    }
    aged.sort((a, b) => a.usedMs - b.usedMs);
    for (const { name } of aged.slice(0, Math.max(0, aged.length + 1 - maxTemplates))) {
      this.#known.delete(name);
      await rm(join(this.options.folder, name), { recursive: true, force: true });
    }
  }
}

/** Runs in the template what a restore will need first, so that its pages and allocations are there: twice, over two connections. */
async function warmGuest(ports: GuestPorts, signal: AbortSignal): Promise<void> {
  for (let round = 0; round < 2; round += 1) {
    const guest = new GuestClient(ports);
    try {
      await guest.connect(buildTimeoutMs, signal);
      await guest.warm(signal);
      for (let call = 0; call < 3; call += 1) await guest.health(signal);
    } finally {
      guest.close();
    }
    // The agent notices that the host is gone, and waits for the next, before the machine is frozen.
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Which files on the node's disk reservations stand for: what is offered for sandboxes must not grow by what checkpoints take. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { reservedFileBytes } from '../src/node-info.js';
import { FakeHost, missing } from './fake-host.js';

const mib = 2 ** 20;

describe.skipIf(missing)(`disk that is reserved${missing ? ` (${missing})` : ''}`, () => {
  let host: FakeHost;
  beforeEach(async () => {
    host = await new FakeHost().open();
  });
  afterEach(() => host.close());

  /** Whole MiB: records and sockets are small. */
  const reserved = async () => Math.round((await reservedFileBytes(host)) / mib);
  const write = (folder: string, name: string, size: number) => {
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, name), Buffer.alloc(size * mib, 1));
  };

  it('is what machines write to, and memory while it is paused; never what a checkpoint or a layer is made of', async () => {
    await host.create('a');
    write(host.records.machineFolderOf('a'), 'overlay.qcow2', 3);
    expect(await reserved()).toBe(3);
    const running = await host.checkpoint('a', 'running', true);
    write(host.snapshots.folderOf(running.point.memory as string), 'memory', 20);
    expect(await reserved()).toBe(3);
    await host.pause('a');
    const memory = host.sandboxes.get('a')?.pausedMemory as string;
    write(host.snapshots.folderOf(memory), 'memory', 5);
    expect(await reserved()).toBe(8);
    await host.checkpoint('a', 'paused', true);
    expect(await reserved()).toBe(8);
    await host.resume('a');
    await host.until('a', 'running');
    // The checkpoint keeps its file, and only disk is booked.
    expect(await reserved()).toBe(3);
    await host.delete('a');
    expect(host.snapshotIds).toHaveLength(2);
    expect(await reserved()).toBe(0);
  });
});

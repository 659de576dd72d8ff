/** Checkpoints of paused sandboxes, with machines of the fake driver: made without waking them, whatever fails on the way. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FakeHost, missing } from './fake-host.js';

describe.skipIf(missing)(`checkpoints of paused sandboxes${missing ? ` (${missing})` : ''}`, () => {
  let host: FakeHost;
  beforeEach(async () => {
    host = await new FakeHost().open();
  });
  afterEach(() => host.close());

  const recordOf = async (id: string) =>
    (await host.records.readAll()).records.find(({ spec }) => spec.sandboxId === id);
  const filesOf = (id: string) => readdirSync(join(host.snapshots.root, id)).sort();
  const begin = (id: string, checkpointId: string, memory: boolean) =>
    host.sandboxes.put({
      ...structuredClone(host.sandboxes.get('a')?.spec as never as object),
      ...{ sandboxId: id, generation: 1, hostname: id, checkpoint: { id: checkpointId, memory } },
    } as never);

  it('memory and disk share the files of the pause; it stays paused, is copied, and goes on', async () => {
    await host.create('a');
    await host.pause('a');
    const [snapshot] = host.snapshotIds as [string];
    const restores: string[] = [];
    host.atStep = ({ operation, phase }) => void (phase === 'before' && restores.push(operation));
    const whole = await host.checkpoint('a', 'whole', true);
    const disk = await host.checkpoint('a', 'disk', false);
    expect(restores).not.toContain('restore');
    expect(host.report('a')).toMatchObject({ state: 'paused', generation: 1 });
    expect(host.snapshotIds).toEqual([snapshot]);
    expect(whole.point).toMatchObject({ memory: snapshot, layers: [snapshot] });
    expect(whole.made).toMatchObject({ fingerprint: 'fake-1', shape: { vcpus: 1, memoryMiB: 256 } });
    expect(disk).toMatchObject({ consistency: 'crash', note: expect.stringMatching(/was paused/) });
    expect(disk.point).toMatchObject({ layers: [snapshot] });
    expect(disk.point.memory).toBeUndefined();
    await begin('b', 'disk', false);
    await host.until('b', 'running', 'failed');
    expect(host.report('b')?.state, host.report('b')?.message).toBe('running');
    // Also after a restart its disk is where its record says.
    await host.restart();
    await host.resume('a');
    await host.until('a', 'running');
    expect((await recordOf('a'))?.layers).toEqual([snapshot]);
    // Of another pause there is another disk.
    await host.pause('a');
    const next = await host.checkpoint('a', 'next', true);
    expect(next.point.layers).toEqual([snapshot, next.point.memory]);
    // What goes first takes nothing from the others.
    await Promise.all([host.delete('a'), host.delete('b')]);
    await host.checkpoints.remove('whole');
    await host.checkpoints.remove('next');
    expect(host.snapshotIds).toEqual([snapshot]);
    expect(filesOf(snapshot)).toEqual(['checksums.json', 'disk.qcow2']);
  });

  it('a full disk before its record says so: no checkpoint, and it is as it was', async () => {
    await host.create('a');
    await host.pause('a');
    const makeRoom = host.fillDisk((record) => (record.layers ?? []).length > 0);
    await expect(host.checkpoint('a', 'c', true)).rejects.toThrow(/no space/);
    expect(host.checkpoints.find('c')).toBeUndefined();
    expect(host.report('a')?.state).toBe('paused');
    makeRoom();
    expect((await recordOf('a'))?.layers ?? []).toEqual([]);
    await host.checkpoint('a', 'c', true);
    await host.resume('a');
    await host.until('a', 'running');
  });

  it('cut off after its record says so: the next resume, or the next checkpoint, takes it further', async () => {
    for (const [id, next] of [
      ['a', () => host.checkpoint('a', 'again', false)],
      ['b', () => Promise.resolve()],
    ] as const) {
      await host.create(id);
      await host.pause(id);
      host.atStep = ({ operation, phase }) => {
        if (operation === 'freezeDisk' && phase === 'after') throw new Error('the test says no');
      };
      await expect(host.checkpoint(id, `of-${id}`, true)).rejects.toThrow('the test says no');
      host.atStep = () => undefined;
      const { layers = [], memory } = (await recordOf(id)) ?? {};
      expect(layers).toEqual([memory]);
      expect(filesOf(memory as string)).not.toContain('disk.qcow2');
      await host.restart();
      await next();
      await host.resume(id);
      await host.until(id, 'running', 'paused');
      expect(host.report(id)?.state).toBe('running');
      expect(filesOf(memory as string)).toContain('disk.qcow2');
    }
  });

  it('what was paused by another QEMU keeps its make: its memory is refused, its disk is not', async () => {
    await host.create('a');
    await host.pause('a');
    const [snapshot] = host.snapshotIds as [string];
    const read = host.snapshots.read.bind(host.snapshots);
    host.snapshots.read = async (id) => {
      const found = await read(id);
      return found && id === snapshot ? { ...found, snapshotFingerprint: 'other' } : found;
    };
    const made = await host.checkpoint('a', 'c', true);
    expect(() => host.checkpoints.checkFit(made, true)).toThrow(/another version, accelerator or processor/);
    expect(() => host.checkpoints.checkFit(made, false)).not.toThrow();
  });

  it('with a pause, a resume or a delete at the same moment: one after the other, and nothing is left', async () => {
    await host.create('a');
    const [paused, made] = await Promise.all([host.pause('a'), host.checkpoint('a', 'c', true)]);
    expect([paused.state, made.point.layers]).toEqual(['paused', [made.point.memory]]);
    await host.resume('a');
    await host.until('a', 'running');
    await host.pause('a');
    let resuming: Promise<unknown> | undefined;
    host.atStep = ({ operation, phase }) => {
      if (operation === 'freezeDisk' && phase === 'before') resuming ??= host.resume('a');
    };
    await host.checkpoint('a', 'd', true);
    await resuming;
    await host.until('a', 'running');
    await host.pause('a');
    let deleting: Promise<void> | undefined;
    host.atStep = ({ operation, phase }) => {
      if (operation === 'freezeDisk' && phase === 'before') deleting = host.delete('a');
    };
    await host.checkpoint('a', 'e', true);
    await deleting;
    expect(host.report('a')).toBeUndefined();
    expect((await host.checkpoints.list()).map(({ id }) => id)).toEqual(['c', 'd', 'e']);
  });
});

/** What fails in a pause, a resume or a fork, with machines of the fake driver: nothing is lost, nothing is left, and no state lies. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { RestorePoint } from '../src/sandbox/record.js';
import { FakeHost, missing } from './fake-host.js';

/** A promise, and what resolves it. */
function gate(): { reached: Promise<void>; open(): void } {
  let open = () => {};
  const reached = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { reached, open: () => open() };
}

describe.skipIf(missing)(`pauses and forks in which something fails${missing ? ` (${missing})` : ''}`, () => {
  let host: FakeHost;
  beforeEach(async () => {
    host = await new FakeHost().open();
  });
  afterEach(() => host.close());

  it('pauses, resumes, and forks, also over a restart', async () => {
    await host.create('a');
    await host.fork('a', 'b');
    await host.until('b', 'running');
    await host.pause('a');
    await host.restart();
    expect([host.report('a')?.state, host.report('b')?.state]).toEqual(['paused', 'running']);
    await host.resume('a');
    await host.until('a', 'running');
  });

  it('a full disk after the record says paused: it is paused, and its lifetime still ends it', async () => {
    await host.create('a', { deadlineUnixMs: Date.now() + 3_000 });
    let written = false;
    host.beforeWrite = (record) => {
      if (written) throw Object.assign(new Error('no room'), { code: 'ENOSPC' });
      written = record.report.state === 'paused';
    };
    expect((await host.pause('a')).state).toBe('paused');
    await host.until('a', 'stopped');
    expect(host.report('a')?.reason).toBe('TIMEOUT');
  });

  it('a full disk when a resume names its machine: nothing has run, and it stays paused', async () => {
    await host.create('a');
    await host.pause('a');
    const makeRoom = host.fillDisk((record) => record.machine !== undefined);
    await host.resume('a');
    await host.until('a', 'paused', 'failed', 'running');
    expect(host.report('a')).toMatchObject({ state: 'paused', message: expect.stringMatching(/no space/) });
    makeRoom();
    await host.resume('a');
    await host.until('a', 'running');
  });

  it('a full disk when a resumed sandbox runs: it runs on', async () => {
    await host.create('a');
    await host.pause('a');
    const makeRoom = host.fillDisk((record) => record.report.state === 'running');
    await host.resume('a');
    await host.until('a', 'running');
    await sleep(100);
    expect(host.report('a')?.state).toBe('running');
    makeRoom();
    await host.restart();
    await host.until('a', 'running');
  });

  it('a full disk while it is saved for copies: no copy, no memory left, and the source runs on', async () => {
    await host.create('a');
    host.atSave = (phase) => {
      if (phase === 'after') host.fillDisk();
    };
    await expect(host.fork('a', 'b')).rejects.toMatchObject({ code: 'ENOSPC' });
    host.beforeWrite = () => undefined;
    expect(host.report('a')?.state).toBe('running');
    expect(host.report('b')).toBeUndefined();
    // It stood above the saved disk already, which stays below its own; the memory is gone.
    const [layer, ...others] = host.snapshotIds;
    expect(others).toEqual([]);
    expect(readdirSync(join(host.snapshots.root, layer as string))).toEqual(['disk.qcow2']);
  });

  it('a full disk when a rollback begins: it is refused, and the sandbox is as it was', async () => {
    await host.create('a');
    for (const [state, generation] of [
      ['running', 1],
      ['paused', 1],
    ] as const) {
      if (state === 'paused') await host.pause('a');
      const makeRoom = host.fillDisk((record) => record.rollback !== undefined);
      const back = host.sandboxes.get('a')?.rollBack(2, { sandboxId: 'a' } as RestorePoint);
      await expect(back).rejects.toMatchObject({ code: 'ENOSPC' });
      expect(host.report('a')).toMatchObject({ state, generation });
      makeRoom();
    }
    await host.resume('a');
    await host.until('a', 'running');
  });

  it('a machine that dies while it is saved for a pause or for copies: it has ended, and nothing is left of the save', async () => {
    for (const [id, moment, work] of [
      ['a', 'after', () => host.pause('a')],
      ['b', 'before', () => host.fork('b', 'c')],
    ] as const) {
      await host.create(id);
      host.atSave = async (phase, machine) => {
        if (phase !== moment) return;
        process.kill(host.report(id)?.pid as number, 'SIGKILL');
        await machine.ended;
        await sleep(50);
      };
      await expect(work()).rejects.toThrow();
      await host.until(id, 'failed');
      expect(host.report(id)).toMatchObject({ reason: 'MACHINE_ENDED' });
      await host.restart();
      expect(host.report(id)).toMatchObject({ state: 'failed', reason: 'MACHINE_ENDED' });
      const states = host.told.filter(({ sandboxId }) => sandboxId === id).map(({ state }) => state);
      expect(states.slice(states.indexOf('running') + 1)).not.toContain('running');
      host.atSave = () => undefined;
    }
    expect(host.report('c')).toBeUndefined();
    expect(host.snapshotIds).toEqual([]);
  });

  it('a source that is deleted while it is saved: the fork says so, and nothing is left', async () => {
    for (const phase of ['before', 'after'] as const) {
      const id = `a-${phase}`;
      await host.create(id);
      let deleting: Promise<void> | undefined;
      host.atSave = async (now) => {
        if (now !== phase) return;
        deleting = host.delete(id);
        await sleep(20);
      };
      host.beforeShare = () => deleting;
      await expect(host.fork(id, 'b')).rejects.toThrow(/is being ended|was ended while it was forked/);
      await deleting;
      expect([host.report(id), host.report('b')]).toEqual([undefined, undefined]);
      expect(host.snapshotIds).toEqual([]);
      host.atSave = () => undefined;
    }
  });

  it('a copy that is deleted before it begins leaves nothing, and the others run', async () => {
    await host.create('a');
    const seen = gate();
    host.beforeWrite = async (record) => {
      if (record.spec.sandboxId === 'c') seen.open();
      if (record.spec.sandboxId === 'c' && record.report.state === 'pending') await sleep(50);
    };
    const forking = host.fork('a', 'b', 'c', 'd');
    await seen.reached;
    await Promise.all([host.delete('b'), host.delete('c')]);
    await forking;
    await host.until('d', 'running');
    expect([...host.holders].sort()).toEqual(['a', 'd']);
    expect([host.report('b'), host.report('c')]).toEqual([undefined, undefined]);
  });

  it('a pause that comes while copies are made waits for them', async () => {
    await host.create('a');
    const saving = gate();
    host.atSave = async (phase) => {
      if (phase !== 'before') return;
      host.atSave = () => undefined;
      saving.open();
      await sleep(100);
    };
    const forking = host.fork('a', 'b');
    await saving.reached;
    const pausing = Promise.all([host.pause('a'), host.pause('a')]);
    expect((await forking).length).toBe(1);
    expect((await pausing).map(({ state }) => state)).toEqual(['paused', 'paused']);
    await host.until('b', 'running');
  });

  it('a network whose policy cannot be put in force is not used by the next resume', async () => {
    await host.create('a');
    await host.pause('a');
    // As after a restart of the host: its network is gone.
    const record = (await host.records.readAll()).records[0];
    if (record) {
      record.network = { kind: 'tap', index: 1 };
      await host.records.write(record);
    }
    await host.restart();
    host.beforePolicy = () => {
      throw new Error('the rules cannot be written');
    };
    await host.resume('a');
    await host.until('a', 'paused', 'running');
    expect(host.report('a')).toMatchObject({ state: 'paused', message: 'the rules cannot be written' });
    let applied = 0;
    host.beforePolicy = () => {
      applied++;
    };
    await host.resume('a');
    await host.until('a', 'running');
    expect(applied).toBe(1);
  });

  it('who waits and gives up wants it no more', async () => {
    await host.create('a');
    await host.pause('a');
    const patience = new AbortController();
    const waiting = host.sandboxes.get('a')?.awake(patience.signal);
    expect(host.told.at(-1)).toMatchObject({ sandboxId: 'a', wanted: true });
    patience.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    expect(host.told.at(-1)).not.toHaveProperty('wanted');
  });
});

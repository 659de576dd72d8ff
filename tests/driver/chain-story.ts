/**
 * A sandbox that is saved turn after turn, each time with something new on its disk: its chain of layers grows and is
 * merged, and nothing that was written may be lost. Told by `tests/e2e` in short, by `tests/long` in full.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { SnapshotUse } from '@sandlot/protocol';
import { expect } from 'vitest';
import { createFrom, makeCheckpoint, removeCheckpoint, rollBack } from './checkpoints.js';
import { pauseSandbox, resumeSandbox } from './pauses.js';
import type { SeededRandom } from './seeded-random.js';
import type { TestNode } from './test-node.js';
import type { TestSandbox } from './test-sandbox.js';

/** Most layers below a disk: docs/rfd/0003-snapshots-and-chains.md. */
export const cap = 16;
/** From here on they are merged. */
export const mergedFrom = 8;

/** Writes from time to time, flushes, and keeps the longest time that one turn took: whether the guest stands still. */
const pulse = `
import os, time
longest = 0
with open('/root/pulse', 'wb', buffering=0) as file:
    while True:
        begin = time.monotonic()
        file.seek(0); file.write(os.urandom(4096)); os.fsync(file.fileno())
        time.sleep(0.02)
        longest = max(longest, time.monotonic() - begin)
        with open('/dev/shm/longest', 'w') as out: out.write(f'{longest:.3f}')
`;

/** The story of one sandbox. */
export class ChainStory {
  /** By turn. */
  readonly checkpoints = new Map<number, string>();
  /** All of them, also of turns that came again after a rollback. */
  readonly #made: string[] = [];
  #turn = 0;

  private constructor(
    private readonly node: TestNode,
    readonly sandbox: TestSandbox,
  ) {}

  /** Begins with a new sandbox. */
  static async begin(node: TestNode): Promise<ChainStory> {
    const sandbox = await node.create({ tokensFrom: 1 });
    await sandbox.out('mkdir /root/t; : > /root/sums; : > /root/all');
    return new ChainStory(node, sandbox);
  }

  get turns(): number {
    return this.#turn;
  }

  /** Something new, something changed, something removed. */
  async write(kib: number): Promise<void> {
    const turn = ++this.#turn;
    const gone = turn - 40;
    await this.sandbox.out(
      [
        'cd /root/t',
        `head -c ${kib * 1024} /dev/urandom > ${turn}`,
        `sha256sum ${turn} >> ../sums`,
        `echo ${turn} >> ../all`,
        ...(gone > 0 ? [`rm -f ${gone}`, `sed -i '/  ${gone}$/d' ../sums`] : []),
      ].join('; '),
    );
  }

  /** Saves it as a fork does, without a copy. Resolves with how long that took, ms. */
  async save(): Promise<number> {
    const begin = performance.now();
    await this.node.requestFork(this.sandbox, 0);
    return performance.now() - begin;
  }

  /** Makes a checkpoint of its disk that stays. Resolves with how long that took until it is durable, ms. */
  async checkpoint(): Promise<number> {
    const begin = performance.now();
    const { id } = await makeCheckpoint(this.node, this.sandbox, false);
    this.checkpoints.set(this.#turn, id);
    this.#made.push(id);
    return performance.now() - begin;
  }

  /** A sandbox that begins with the checkpoint of this turn has what was there then. */
  async verifyCheckpoint(turn: number): Promise<void> {
    const child = await createFrom(this.node, this.checkpoints.get(turn) as string, false);
    await this.verify(child, turn);
    await child.delete();
  }

  /** Puts it back to the checkpoint of this turn. */
  async rollBack(turn: number): Promise<void> {
    await rollBack(this.node, this.sandbox, this.checkpoints.get(turn) as string, false);
    await this.sandbox.untilState('running');
    this.#turn = turn;
    await this.verify();
  }

  /** Deletes it and all its checkpoints; nothing is left. */
  async end(): Promise<void> {
    await this.sandbox.delete();
    for (const id of this.#made) await removeCheckpoint(this.node, id);
    await this.sandbox.until('nothing is left', async () => this.folders().length === 0);
  }

  /** Layers below its disk, as its node counts them. */
  async depth(): Promise<number> {
    return (await this.use())?.layers ?? 0;
  }

  /** What the node says its snapshots take. */
  async use(): Promise<SnapshotUse | undefined> {
    return (await this.#uses()).find(({ holder }) => holder === this.sandbox.id);
  }

  async #uses(): Promise<SnapshotUse[]> {
    return (await this.node.ask<{ snapshots: SnapshotUse[] }>('GET', '/v1/snapshots')).snapshots;
  }

  /** All that it wrote is there, read from its disk. */
  async verify(sandbox = this.sandbox, turn = this.#turn): Promise<void> {
    const said = await sandbox
      .out(
        'sync; echo 3 > /proc/sys/vm/drop_caches; cd /root/t && sha256sum -c ../sums | grep -vc ": OK$"; ls | wc -l; wc -l < ../sums; tail -n 1 ../all',
        { timeoutMs: 120_000 },
      )
      .catch((error: Error) => error.message);
    const files = String(Math.min(turn, 40));
    expect(said.split('\n').map((word) => word.trim())).toEqual(['0', files, files, String(turn)]);
  }

  /** The same in the sandbox, in a copy, and after a pause. */
  async verifyEverywhere(): Promise<void> {
    await this.verify();
    const [copy] = (await this.node.requestFork(this.sandbox, 1)) as [TestSandbox];
    expect((await copy.untilState('running', 'failed')).state).toBe('running');
    await this.verify(copy);
    await copy.delete();
    await pauseSandbox(this.node, this.sandbox);
    await resumeSandbox(this.node, this.sandbox);
    await this.sandbox.untilState('running');
    await this.verify();
  }

  /** Resolves when nothing is left to merge. */
  async untilMerged(): Promise<void> {
    const isMerged = async (): Promise<boolean> => {
      const merging = (await this.#uses()).some(({ holder }) => holder.startsWith('merge'));
      return !merging && (await this.depth()) < mergedFrom;
    };
    await this.sandbox.until('its layers are merged', isMerged, 120_000, 250);
  }

  /** Snapshots that there are. */
  folders(): string[] {
    return readdirSync(join(this.node.dataFolder, 'snapshots'));
  }

  /** Bytes that the layers below its disk take. */
  layerBytes(): number {
    const disk = (name: string) => join(this.node.dataFolder, 'snapshots', name, 'disk.qcow2');
    // One that is being made has no name yet.
    const blocksOf = (name: string) => statSync(disk(name), { throwIfNoEntry: false })?.blocks ?? 0;
    return this.folders().reduce((sum, name) => sum + blocksOf(name) * 512, 0);
  }

  /** QEMU holds no layer open that is gone. */
  async expectNothingHeld(): Promise<void> {
    const { pid } = await this.sandbox.report();
    const held = execFileSync(
      'find',
      [`/proc/${pid}/fd`, '-follow', '-type', 'f', '-links', '0', '-printf', '%l\n'],
      {
        encoding: 'utf8',
      },
    );
    expect(held.split('\n').filter((line) => line.includes('.qcow2'))).toEqual([]);
  }

  /** From now on it writes all the time. */
  async beginPulse(): Promise<void> {
    await this.sandbox.exec(['python3', '-c', pulse], { session: 'pulse' });
    await this.longestPulseMs();
  }

  /** The longest that one of its writes took until now, ms. */
  async longestPulseMs(): Promise<number> {
    let text = '';
    await this.sandbox.until('it writes', async () => {
      text = await this.sandbox.out('cat /dev/shm/longest').catch(() => '');
      return text !== '';
    });
    return Number(text) * 1000;
  }
}

/** Kills the node agent so often in a merge, of a sandbox that runs or is paused; each time it is made in the end, and nothing is lost. */
export async function killInMerges(node: TestNode, rounds: number, random: SeededRandom): Promise<void> {
  const story = await ChainStory.begin(node);
  const { sandbox } = story;
  for (let round = 0; round < rounds; round++) {
    while ((await story.depth()) < mergedFrom) {
      await story.write(6 * 1024);
      await story.save();
    }
    const isPaused = round % 2 === 1;
    if (isPaused) await pauseSandbox(node, sandbox);
    await pause(random.between(0, 1_500));
    await node.killAgent();
    await node.startAgent();
    await story.untilMerged();
    if (isPaused) await resumeSandbox(node, sandbox);
    await sandbox.untilState('running');
    await story.verify();
  }
  await story.verifyEverywhere();
  await sandbox.delete();
  expect(story.folders()).toEqual([]);
}

/** The middle one. */
export function median(values: readonly number[]): number {
  return [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] as number;
}

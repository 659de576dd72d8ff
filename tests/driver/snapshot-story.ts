/**
 * Saves a machine while an upload, a download and a command's output run, restores it, and looks on the new
 * connection for a byte of the old one. Told by `tests/e2e` in short, by `tests/long` in full.
 */
import { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { GuestCallError, type GuestClient } from '@sandlot/node-agent';
import { ForeignByteError } from './channel-story.js';
import { SavedMachine, sourceFile } from './saved-machine.js';
import type { SeededRandom } from './seeded-random.js';

/** What the transfers that are cut send and print. */
const old = { uploaded: 0x5a, printed: 0x41 };
const moments = ['before load', 'before start', 'after start'] as const;
const uploadBytes = 2 * 2 ** 20;

/** A save may catch no byte on its way: so many times more saves are made until one did. */
const mostRounds = 5;

/** Runs `snapshots` saves or more, each restored at all moments. Answers the stale bytes that were skipped. */
export async function snapshotInTransfers(snapshots: number, random: SeededRandom): Promise<number> {
  const saved = await SavedMachine.open();
  let skipped = 0;
  try {
    const isOver = (round: number) => round >= snapshots && (skipped > 0 || round >= mostRounds * snapshots);
    for (let round = 0; !isOver(round); round++) {
      const before = await saved.start();
      const cut = startTransfers(before);
      await pause(random.between(100, 900));
      if (cut.ended()) throw new Error('a transfer had ended before the machine was saved');
      await saved.save();
      before.close();
      await cut.settled;
      for (const moment of moments) {
        const guest = await saved.restore(moment);
        try {
          await expectOnlyOwnBytes(guest, 1 + random.between(0, 50));
          skipped += guest.channel.skippedBytes;
        } finally {
          guest.close();
        }
      }
    }
    return skipped;
  } finally {
    await saved.close();
  }
}

/** Three transfers without an end. */
function startTransfers(guest: GuestClient): { ended(): boolean; settled: Promise<unknown> } {
  async function* endless() {
    for (;;) yield Buffer.alloc(2 ** 16, old.uploaded);
  }
  const again = async () => {
    for (;;) await read(guest, '/source');
  };
  const printing = async () => {
    const stream = await guest.exec({ argv: ['/mark', String(old.printed), '0'] });
    for await (const event of stream.events()) if (event.kind === 'end') return;
  };
  let ended = false;
  const settled = Promise.allSettled(
    [guest.writeFile('/t/old', Readable.from(endless())), again(), printing()].map((transfer) =>
      transfer.finally(() => {
        ended = true;
      }),
    ),
  );
  return { ended: () => ended, settled };
}

/** Transfers on the new connection, at once: each must carry its own bytes only. */
async function expectOnlyOwnBytes(guest: GuestClient, mark: number): Promise<void> {
  const upload = async () => {
    await guest.writeFile('/t/new', Readable.from([Buffer.alloc(uploadBytes, mark)]));
    expectAll(await read(guest, '/t/new'), mark, uploadBytes, 'an upload');
  };
  const download = async () =>
    expectAll(await read(guest, '/source'), sourceFile.mark, sourceFile.bytes, 'a download');
  const print = async () => {
    const chunks: Buffer[] = [];
    const stream = await guest.exec({ argv: ['/mark', String(mark), '300000'] });
    for await (const event of stream.events()) if (event.kind === 'stdout') chunks.push(event.data);
    expectAll(Buffer.concat(chunks), mark, 300_000, 'a command’s output');
  };
  await Promise.all([upload(), download(), print()]);
  // The upload that was cut has left no file, and the command that was cut has ended with its stream.
  const left = await guest.stat('/t/old').catch((error: unknown) => error);
  if (!(left instanceof GuestCallError) || left.status !== 404)
    throw new ForeignByteError(`the upload of the old connection has left ${JSON.stringify(left)}`);
  for (const deadline = performance.now() + 15_000; ; await pause(100)) {
    const running = (await guest.listExecs()).sessions.filter(({ end }) => end === undefined);
    if (running.length === 0) return;
    if (performance.now() > deadline) throw new Error('the command of the old connection still runs');
  }
}

async function read(guest: GuestClient, path: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of (await guest.readFile(path)).body) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function expectAll(bytes: Buffer, mark: number, size: number, what: string): void {
  const at = bytes.findIndex((byte) => byte !== mark);
  if (at >= 0) throw new ForeignByteError(`${what} has the byte ${bytes[at]} at ${at}, not ${mark}`);
  if (bytes.length !== size) throw new ForeignByteError(`${what} has ${bytes.length} bytes, not ${size}`);
}

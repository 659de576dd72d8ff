/**
 * Kills the host side of the channel in the middle of transfers, again and again, and looks in each
 * round for a byte that belongs to another connection. Told by `tests/e2e` in short, by `tests/long` in full.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { SeededRandom } from './seeded-random.js';
import type { TestNode } from './test-node.js';
import type { TestSandbox } from './test-sandbox.js';

const transferBytes = 8 * 2 ** 20;

/** Lists each file below /root/t as `name size distinct-bytes`. */
const census = `
import os
for name in sorted(os.listdir('/root/t')):
    data = open('/root/t/' + name, 'rb').read()
    print(name, len(data), *sorted(set(data)))
`;

/** Runs the rounds; throws at the first foreign byte. Answers how many transfers a kill has cut. */
export async function killInTransfers(
  node: TestNode,
  sandbox: TestSandbox,
  rounds: number,
  random: SeededRandom,
): Promise<number> {
  let cut = 0;
  await sandbox.out(
    `mkdir -p /root/t && head -c ${transferBytes} /dev/zero | tr '\\0' '\\356' > /root/source`,
  );
  for (let round = 0; round < rounds; round++) {
    // Each round has bytes of its own, so that a foreign one is known by its value.
    const mark = 1 + (round % 200);
    const transfers = [
      upload(sandbox, `/root/t/cut-${round}`, mark),
      download(sandbox),
      printed(sandbox, mark),
    ];
    const settled = Promise.allSettled(transfers);
    await pause(random.between(5, 400));
    await node.killAgent();
    await node.startAgent();
    for (const result of await settled) {
      if (result.status === 'fulfilled') continue;
      if (result.reason instanceof ForeignByteError) throw result.reason;
      cut++;
    }
    // The first transfers of the new connection are where bytes of the old one would come out.
    await upload(sandbox, `/root/t/whole-${round}`, mark);
    await download(sandbox);
    await printed(sandbox, mark);
    const expected = [`whole-${round} ${transferBytes} ${mark}`];
    const found = (await sandbox.python(census))
      .split('\n')
      .filter((line) => line !== `cut-${round} ${transferBytes} ${mark}`);
    if (found.join() !== expected.join())
      throw new ForeignByteError(`round ${round}: found ${found}, not ${expected}`);
    await sandbox.out('rm -f /root/t/*');
  }
  return cut;
}

/** A byte that another connection has sent. */
export class ForeignByteError extends Error {
  override name = 'ForeignByteError';
}

async function upload(sandbox: TestSandbox, path: string, mark: number): Promise<void> {
  await sandbox.files.uploadStream(slices(mark), path);
}

// A stream that is read once: the SDK does not repeat it, so a cut one stays cut.
async function* slices(mark: number): AsyncGenerator<Uint8Array> {
  for (let sent = 0; sent < transferBytes; sent += 2 ** 18) yield Buffer.alloc(2 ** 18, mark);
}

async function download(sandbox: TestSandbox): Promise<void> {
  let size = 0;
  for await (const chunk of await sandbox.files.downloadStream('/root/source')) {
    size += chunk.byteLength;
    if (!chunk.every((byte) => byte === 0xee))
      throw new ForeignByteError(`a download has a foreign byte near ${size}`);
  }
  if (size !== transferBytes) throw new Error(`the download ended after ${size} bytes`);
}

async function printed(sandbox: TestSandbox, mark: number): Promise<void> {
  const { stdoutBytes, exitCode } = await sandbox.run([
    'python3',
    '-c',
    `import os; os.write(1, bytes([${mark}]) * 65536)`,
  ]);
  if (!stdoutBytes.every((byte) => byte === mark))
    throw new ForeignByteError('a command’s output has a foreign byte');
  if (exitCode !== 0 || stdoutBytes.length !== 65536) throw new Error(`the command ended with ${exitCode}`);
}

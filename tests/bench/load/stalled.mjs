// What clients cost that open a stream of endless output and stop reading: memory that both daemons keep, for each of them.
// Used by main.mjs.
import { setTimeout as sleep } from 'node:timers/promises';

const stillMs = 500;
const deadlineMs = 60_000;
/** Memory that moves less than this between two looks has settled, MiB. */
const settledMiB = 0.5;

/** One stalled client for each sandbox. Answers KiB for each; the streams are ended. */
export async function measureStalled({ client, daemons, sandboxes }) {
  const total = ({ controlPlane, nodeAgent }) => controlPlane + nodeAgent;
  const before = total(await daemons.collectedMemory());
  const streams = await Promise.all(
    sandboxes.map(async ({ gateway }) => {
      const stream = await client.openStream(gateway, ['/bin/cat', '/dev/zero'], () => undefined);
      stream.stall();
      return stream;
    }),
  );
  await settled(() => total(daemons.memory()));
  const after = total(await daemons.collectedMemory());
  for (const stream of streams) stream.close();
  return ((after - before) * 1024) / sandboxes.length;
}

/** Resolves when the figure moves no more. */
async function settled(read) {
  const deadline = performance.now() + deadlineMs;
  let last = read();
  for (let still = 0; still < 4 && performance.now() < deadline; ) {
    await sleep(stillMs);
    const now = read();
    still = Math.abs(now - last) < settledMiB ? still + 1 : 0;
    last = now;
  }
}

// What clients cost that open a stream of endless output and stop reading: memory that both daemons keep, for each of them.
// Used by main.mjs.
import { setTimeout as sleep } from 'node:timers/promises';

const stillMs = 500;
const deadlineMs = 60_000;
/** Memory that moves less than this between two looks has settled, MiB. */
const settledMiB = 0.5;

/** Clients that stall before the count begins: with the first ones the daemons' heaps grow once, whoever reads on. */
const warmUp = 32;

/** One stalled client for each sandbox, of more than 32. Answers KiB for each beyond the first 32; the streams are ended. */
export async function measureStalled({ client, daemons, sandboxes }) {
  const streams = [];
  const stall = async (some) => {
    const opened = some.map(({ gateway }) =>
      client.openStream(gateway, ['/bin/cat', '/dev/zero'], () => undefined),
    );
    for (const stream of await Promise.all(opened)) {
      stream.stall();
      streams.push(stream);
    }
    await settled(() => total(daemons.memory()));
    return total(await daemons.collectedMemory());
  };
  const before = await stall(sandboxes.slice(0, warmUp));
  const after = await stall(sandboxes.slice(warmUp));
  for (const stream of streams) stream.close();
  return ((after - before) * 1024) / (sandboxes.length - warmUp);
}

const total = ({ controlPlane, nodeAgent }) => controlPlane + nodeAgent;

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

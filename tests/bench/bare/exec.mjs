// Bare round trip of an exec, ms: HTTP/2 on the virtio-serial port, a shell line in the mounted root.
// `node exec.mjs [--count 200] [--line /bin/true] [--accelerator tcg|kvm]` prints JSON.
import { pathToFileURL } from 'node:url';
import { call, connectH2 } from './h2.mjs';
import { endMachine, quantile, readArguments, restore, withBare } from './machine.mjs';

/** A machine with its root mounted and warm: `exec(line)` answers its time in ms. */
export async function openExec(bare) {
  const machine = await restore(bare);
  const session = await connectH2(machine);
  const { text } = await call(session, 'POST', '/mount', { body: '' });
  if (text !== 'ok') throw new Error(`bare mount failed: ${text}`);
  const exec = async (line) => {
    const begin = performance.now();
    const { exit } = await call(session, 'POST', '/exec', { body: line });
    if (exit !== 0) throw new Error(`bare exec of ${line}: exit ${exit}`);
    return performance.now() - begin;
  };
  const close = async () => {
    session.destroy();
    await endMachine(machine);
  };
  return { exec, close, session, machine };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { count, line, accelerator } = readArguments({ count: 200, line: '/bin/true', accelerator: 'tcg' });
  await withBare({ agent: 'h2', accelerator }, async (bare) => {
    const { exec, close } = await openExec(bare);
    for (let i = 0; i < 20; i++) await exec(line);
    const times = [];
    for (let i = 0; i < count; i++) times.push(await exec(line));
    await close();
    const at = (part) => Math.round(quantile(times, part) * 100) / 100;
    console.log(JSON.stringify({ count, line, execMs: { p50: at(0.5), p99: at(0.99) } }));
  });
}

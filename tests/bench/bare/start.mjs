// Bare figures of a start, ms: restore to the agent's first answer; and restore, mount and first exec.
// `node start.mjs [--count 20] [--accelerator tcg|kvm]` prints JSON; run.mjs calls `measureStart`.
import { pathToFileURL } from 'node:url';
import {
  connectLines,
  endMachine,
  mountAndExec,
  quantile,
  readArguments,
  restore,
  withBare,
} from './machine.mjs';

/** One machine from nothing to its first exec result. */
export async function measureStart(bare, line = 'echo hello') {
  const begin = performance.now();
  const machine = await restore(bare);
  const ask = await connectLines(machine);
  await ask('PING');
  const answered = performance.now();
  await mountAndExec(ask, line);
  const done = performance.now();
  await endMachine(machine);
  return { firstAnswerMs: answered - begin, firstExecMs: done - begin };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { count, accelerator } = readArguments({ count: 20, accelerator: 'tcg' });
  await withBare({ accelerator }, async (bare) => {
    const rounds = [];
    for (let i = 0; i < count; i++) rounds.push(await measureStart(bare));
    const of = (name, part) =>
      Math.round(
        quantile(
          rounds.map((round) => round[name]),
          part,
        ) * 10,
      ) / 10;
    console.log(
      JSON.stringify({
        count,
        firstAnswerMs: { p50: of('firstAnswerMs', 0.5), p90: of('firstAnswerMs', 0.9) },
        firstExecMs: { p50: of('firstExecMs', 0.5), p90: of('firstExecMs', 0.9) },
      }),
    );
  });
}

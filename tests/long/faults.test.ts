/** Dozens of kills of each daemon and of machines on one server, and large transfers; part of `make test-long-faults`. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { carryFile, flatMiB, readSlowly } from '../driver/big-transfers.js';
import { pythonArchive } from '../driver/checkout.js';
import { CrashStory, steps, victims } from '../driver/crash-story.js';
import { SeededRandom, seedOfRun } from '../driver/seeded-random.js';
import { TestServer } from '../driver/test-server.js';

const image = 'python:3.11-slim';
const roundsOfEach = 5;

let server: TestServer;

beforeAll(async () => {
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 120_000 });
});
afterAll(() => server?.close());

describe('kill -9', () => {
  let story: CrashStory;

  beforeAll(async () => {
    story = await CrashStory.begin(server, image, new SeededRandom(seedOfRun('kills')));
  });
  afterAll(() => story?.end());

  const rounds = victims.flatMap((victim) => steps.map((step) => ({ victim, step })));
  const all = [...Array(roundsOfEach).keys()].flatMap((turn) => rounds.map((round) => ({ ...round, turn })));

  it.each(all)(
    'of the $victim in a $step, turn $turn: nothing is lost, nothing is left',
    async (round) => {
      await story.round(round.victim, round.step);
    },
    180_000,
  );
});

describe('memory of both daemons is flat', () => {
  let id: string;

  beforeAll(async () => {
    id = await server.lastLine(['create', image, '--memory', '0.5', '--disk', '6']);
  });

  it('for a file of 2 GiB there and back', async () => {
    const growth = await carryFile(server, id, 2048);
    process.stderr.write(`2 GiB there and back: grown by ${JSON.stringify(growth)} MiB\n`);
    expect(growth['node agent']).toBeLessThan(flatMiB);
    expect(growth['control plane']).toBeLessThan(flatMiB);
  }, 1_200_000);

  it('for 1 GiB of output whose reader is slow', async () => {
    const growth = await readSlowly(server, id, 1024);
    process.stderr.write(`1 GiB of output: grown by ${JSON.stringify(growth)} MiB\n`);
    expect(growth['node agent']).toBeLessThan(flatMiB);
    expect(growth['control plane']).toBeLessThan(flatMiB);
  }, 600_000);
});

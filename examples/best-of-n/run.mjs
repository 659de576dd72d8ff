// The story of README.md: best of N with forks, printed as a tree. Needs a running server (`make run`). Arguments: how
// many copies of the best one each round, how many rounds.
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect } from '../connect.mjs';

const width = Number(process.argv[2] ?? 3);
const rounds = Number(process.argv[3] ?? 3);
/** Random changes that each copy tries in a round. */
const tries = 60;

/** Asks the process that holds the trip in its memory. */
const askProgram = `
import socket, sys
trip = socket.socket(socket.AF_UNIX)
trip.connect("/tmp/tour.sock")
trip.sendall((" ".join(sys.argv[1:]) + "\\n").encode())
print(trip.makefile().readline().strip())
`;

/** The trip's length after a round of tries. */
async function improve(sandbox, seed, count = tries) {
  const result = await sandbox.run(['python3', '-c', askProgram, String(seed), String(count)], {
    timeoutMs: 60_000,
  });
  if (result.exitCode !== 0) throw new Error(`the trip does not answer: ${result.stderr}`);
  return Number(result.stdout);
}

/** The process may not listen yet. */
async function firstLength(sandbox) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await improve(sandbox, 0, 0);
    } catch (error) {
      if (attempt === 20) throw error;
      await pause(500);
    }
  }
}

/** The tree, a line a sandbox; the ones that were kept are marked. */
function print({ name, length, kept, children }, depth = 0) {
  console.log(`${'  '.repeat(depth)}${kept ? '*' : '-'} ${name}  ${length.toFixed(4)}`);
  for (const child of children) print(child, depth + 1);
}

const client = connect();
const root = await client.sandboxes.create({
  image: 'python:3.11-slim',
  name: 'best-of-n',
  memoryGiB: 0.5,
  startCommand: 'until [ -f /root/tour.py ]; do sleep 0.1; done; exec python3 /root/tour.py',
});
let best = root;
let rest = [];
try {
  await root.waitUntilRunning();
  const folder = new URL('.', import.meta.url);
  await root.files.uploadFile(fileURLToPath(new URL('tour.py', folder)), '/root/tour.py');
  const tree = { name: 'start', length: await firstLength(root), kept: true, children: [] };
  let node = tree;
  for (let round = 1; round <= rounds; round++) {
    // One call: as many siblings, each with the trip as it is now in the memory of its process.
    rest = await best.fork({ count: width, labels: [`best-of-n=${root.id}`] });
    const lengths = await Promise.all(rest.map((copy, index) => improve(copy, round * 1_000 + index)));
    node.children = lengths.map((length, index) => ({
      ...{ name: `${round}.${index + 1}`, length, kept: false, children: [] },
    }));
    const shortest = lengths.indexOf(Math.min(...lengths));
    const winner = rest.splice(shortest, 1)[0];
    const gone = [best, ...rest];
    [best, rest] = [winner, []];
    // What its copies share with it stays until the last of them goes.
    await Promise.all(gone.map((sandbox) => sandbox.delete()));
    node = node.children[shortest];
    node.kept = true;
  }
  print(tree);
  console.log(
    `from ${tree.length.toFixed(4)} to ${node.length.toFixed(4)} in ${rounds} rounds of ${width} copies`,
  );
  if (node.length >= tree.length) throw new Error('no copy has found a shorter trip');
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  for (const sandbox of [best, ...rest]) await sandbox.delete().catch(() => undefined);
  client.close();
}

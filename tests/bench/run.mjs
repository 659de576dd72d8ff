// `make bench [G=group]`: measures the product on the server that tools/bench.sh started, beside the bare mechanism, prints one
// line a figure (`name product bare ratio limit verdict`), then `N figures`. Exits 1 when a group failed.
import { readExplanations } from './explanations.mjs';
import { figures, formatFigure } from './figures.mjs';
import { openServer } from './product/server.mjs';

/** In this order: the short ones first. */
const groups = ['start', 'exec', 'burst', 'transfer', 'image', 'files', 'memory', 'churn', 'copies'];
/** Run only when named. */
const explicitGroups = ['linux'];

const wanted = process.argv[2] ? [process.argv[2]] : groups;
const known = [...groups, ...explicitGroups];
if (wanted.some((name) => !known.includes(name))) {
  console.error(`there is no group ${wanted}; there are: ${known.join(', ')}`);
  process.exit(2);
}
const explained = readExplanations();
const server = await openServer();
const image = 'python:3.11-slim';
let count = 0;
let failed = 0;
const onFigure = (name, measured) => {
  if (!(name in figures)) throw new Error(`${name} is not in figures.mjs`);
  console.log(formatFigure(name, measured, explained));
  count++;
};
for (const name of wanted) {
  const begin = performance.now();
  try {
    const { measure } = await import(`./groups/${name}.mjs`);
    await measure({ server, image, accelerator: server.status.accelerator, onFigure });
  } catch (error) {
    failed++;
    console.error(`group ${name} failed:`, error);
  } finally {
    await server.removeAll().catch(() => {});
  }
  console.error(`group ${name}: ${Math.round((performance.now() - begin) / 1000)} s`);
}
server.close();
console.log(`${count} figures`);
process.exit(failed > 0 ? 1 : 0);

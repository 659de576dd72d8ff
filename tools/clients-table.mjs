// Writes the table of docs/from-prime.md from what the tests of Prime's clients have found
// (`.cache/client-results/*.json`, lists of `{client, feature, result}`). Called by tools/test-long.sh clients
// with the commit on which it has run all of them; without one, the table says that its runs were apart.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const results = `${root}.cache/client-results`;
const page = `${root}docs/from-prime.md`;
const [begin, end] = ['<!-- clients-table -->', '<!-- /clients-table -->'];

let files;
try {
  files = readdirSync(results).filter((file) => file.endsWith('.json'));
} catch (cause) {
  throw new Error(`${results} cannot be read: run make test-long-clients`, { cause });
}
const lines = files.flatMap((file) => JSON.parse(readFileSync(`${results}/${file}`, 'utf8')));
if (lines.length === 0) throw new Error(`no result is in ${results}: the table stays as it is`);

/** Client → feature → result → how many tests. */
const clients = new Map();
for (const { client, feature, result } of lines) {
  if (!clients.has(client)) clients.set(client, new Map());
  const features = clients.get(client);
  if (!features.has(feature)) features.set(feature, new Map());
  const counts = features.get(feature);
  counts.set(result, (counts.get(result) ?? 0) + 1);
}

// Numbers in names by their value: 0.18.0 after 0.6.26.
const byName = ([a], [b]) => a.localeCompare(b, 'en', { numeric: true });
const cell = (text) => text.replaceAll('|', '\\|');
const tell = (counts) =>
  ['passed', 'passed at the second try', 'failed', 'not yet']
    .filter((result) => counts.has(result))
    .map((result) => {
      const word = result === 'failed' ? '**failed**' : result;
      return counts.size === 1 && counts.get(result) === 1 ? word : `${counts.get(result)} ${word}`;
    })
    .join(', ');
const rows = [...clients]
  .sort(byName)
  .flatMap(([client, features]) =>
    [...features].map(([feature, counts]) => `| ${cell(client)} | ${cell(feature)} | ${tell(counts)} |`),
  );

const commit = process.argv[2];
const days = files.map((file) => statSync(`${results}/${file}`).mtime.toISOString().slice(0, 10)).sort();
const when = days[0] === days.at(-1) ? `on ${days[0]}` : `from ${days[0]} to ${days.at(-1)}`;
const table = [
  commit
    ? `Run ${when} by \`make test-long-clients\`, on commit ${commit}.`
    : `Put together from single runs ${when}, not all on one commit.`,
  '',
  '| Client | Feature | Its tests |',
  '|---|---|---|',
  ...rows,
].join('\n');

const text = readFileSync(page, 'utf8');
const [from, to] = [text.indexOf(begin), text.indexOf(end)];
if (from < 0 || to < from) throw new Error(`${page} has no ${begin} … ${end}`);
writeFileSync(page, `${text.slice(0, from + begin.length)}\n${table}\n${text.slice(to)}`);
console.log(`${rows.length} lines about ${clients.size} clients are in docs/from-prime.md`);

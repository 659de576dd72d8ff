/** Pure: the text of docs/fidelity.md from the results of all places. Used by main.ts. */
import { type Probe, probes } from './catalogue.js';
import { type Comparison, compare, inFewWords, type Judged } from './compare.js';
import type { PlaceResult } from './places/place.js';

/** What the page is made from. */
export interface PageInput {
  date: string;
  kernel: string;
  image: string;
  plain: PlaceResult;
  places: PlaceResult[];
  /** The places whose differences must be explained. */
  judged: readonly Judged<PlaceResult>[];
}

/** Differing lines of a list shown on the page. */
const linesShown = 400;

/** The page. */
export function writePage(input: PageInput): string {
  const { plain, places } = input;
  const present = places.filter((place) => !place.missing);
  return [
    '# Fidelity: Sandlot, runc and gVisor beside a plain Debian VM',
    '',
    '`make fidelity` writes this page: it runs one set of small programs in all places in one run and compares what',
    "they print with what the plain VM's print. `same` means equal, an empty cell that the probe was not run there. A difference",
    'of a Sandlot sandbox is explained below, or the command fails. How it is made: [testing.md](testing.md#fidelity).',
    '',
    `Made ${input.date}, kernel ${input.kernel} in the first ${1 + input.judged.length} columns, image: ${input.image}.`,
    '',
    ...[plain, ...places].map(
      (place) => `* **${place.name}**: ${place.missing ? `not run: ${place.missing}` : place.about}.`,
    ),
    '',
    ...summary(plain, present),
    '',
    ...groups().flatMap((group) => table(input, group)),
    ...input.judged.flatMap((one) => explained(input.plain, one)),
  ].join('\n');
}

function groups(): string[] {
  return [...new Set(probes.map(({ group }) => group))];
}

/** It was to run there. */
export function isMeant(place: PlaceResult, probe: Probe): boolean {
  return place.ran?.includes(probe.id) ?? true;
}

function resultOf(place: PlaceResult, probe: Probe): string {
  return place.values.get(probe.id) ?? 'did not run';
}

function summary(plain: PlaceResult, places: PlaceResult[]): string[] {
  const rows = places.map((place) => {
    const ran = probes.filter((probe) => plain.values.has(probe.id) && isMeant(place, probe));
    const same = ran.filter((probe) => resultOf(place, probe) === resultOf(plain, probe)).length;
    return `| ${place.name} | ${same} | ${ran.length - same} |`;
  });
  return ['| Place | Same | Different |', '|---|---|---|', ...rows];
}

function table(input: PageInput, group: string): string[] {
  const { plain, places } = input;
  const head = ['Probe', 'Plain VM', ...places.map(({ name }) => name)];
  const rows = probes
    .filter((probe) => probe.group === group && plain.values.has(probe.id))
    .map((probe) => {
      const value = resultOf(plain, probe);
      const cells = places.map((place) => {
        if (place.missing || !isMeant(place, probe)) return '';
        const here = resultOf(place, probe);
        const judged = input.judged.find((one) => one.place === place);
        const comparison = compare(probe, value, here, judged?.explanations ?? []);
        return cell(inFewWords(probe, value, here, comparison)) + mark(judged !== undefined, comparison);
      });
      return `| ${[`${probe.what} (\`${probe.id}\`)`, cell(plainWords(probe, value)), ...cells].join(' | ')} |`;
    });
  return [`## ${group}`, '', `| ${head.join(' | ')} |`, `|${'---|'.repeat(head.length)}`, ...rows, ''];
}

function mark(judged: boolean, comparison: Comparison): string {
  if (!judged || comparison.same) return '';
  return comparison.unexplained.length > 0 ? ' **unexplained**' : ' (explained)';
}

function plainWords(probe: Probe, value: string): string {
  if (probe.kind === 'list') return `${value.split('\n').length} lines`;
  const text = value.replaceAll('\n', '; ');
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}

function cell(text: string): string {
  return text.replaceAll('\n', '; ').replaceAll('|', '\\|').replaceAll('<', '&lt;');
}

function explained(plain: PlaceResult, { place, explanations }: Judged<PlaceResult>): string[] {
  const parts = probes.flatMap((probe) => {
    const value = plain.values.get(probe.id);
    if (value === undefined || !isMeant(place, probe)) return [];
    const comparison = compare(probe, value, resultOf(place, probe), explanations);
    if (comparison.same) return [];
    const shown = comparison.lines.slice(0, linesShown);
    const rest = comparison.lines.length - shown.length;
    return [
      `### ${probe.id}`,
      '',
      ...comparison.why.map((why) => `* ${why}`),
      ...(comparison.unexplained.length > 0 ? ['* **Unexplained.**'] : []),
      '',
      '```diff',
      ...shown,
      ...(rest > 0 ? [`(${rest} more)`] : []),
      '```',
      '',
    ];
  });
  return [
    `## Differences of ${place.name}, and why they are right`,
    '',
    '`-` only the plain VM, `+` only the sandbox.',
    '',
    ...parts,
  ];
}

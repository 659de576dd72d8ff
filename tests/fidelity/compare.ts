/** Pure: how a place's result differs from the plain VM's, and whether that is explained. Used by main.ts and page.ts. */
import type { Probe } from './catalogue.js';

/** Results of one place by id of the probe. */
export type Values = ReadonlyMap<string, string>;

/** Why a difference is right. */
export interface Explanation {
  probe: string;
  /** For lists: which differing lines (`- only plain`, `+ only here`); absent: the whole value. */
  lines?: RegExp;
  why: string;
}

/** A column whose differences must be explained. */
export interface Judged<Place> {
  place: Place;
  explanations: readonly Explanation[];
}

/** How one result compares. */
export interface Comparison {
  same: boolean;
  /** Differing lines, `-` only on the plain VM, `+` only here. */
  lines: string[];
  /** Explanations that apply, without repetition. */
  why: string[];
  /** Lines that none explains. */
  unexplained: string[];
}

/** Compares by line: the order of lines does not count in lists, and lists alone have many. */
export function compare(
  probe: Probe,
  plain: string,
  here: string,
  explanations: readonly Explanation[],
): Comparison {
  if (plain === here) return { same: true, lines: [], why: [], unexplained: [] };
  const [before, after] = [new Set(plain.split('\n')), new Set(here.split('\n'))];
  const lines = [
    ...[...before].filter((line) => !after.has(line)).map((line) => `- ${line}`),
    ...[...after].filter((line) => !before.has(line)).map((line) => `+ ${line}`),
  ];
  // The same lines in another order or number.
  if (lines.length === 0) lines.push(`+ ${here.replaceAll('\n', ' / ')}`);
  const mine = explanations.filter((one) => one.probe === probe.id);
  const why = new Set<string>();
  const unexplained = lines.filter((line) => {
    const found = mine.find((one) => !one.lines || one.lines.test(line));
    if (found) why.add(found.why);
    return !found;
  });
  return { same: false, lines, why: [...why], unexplained };
}

/** A difference in a few words, for a cell. */
export function inFewWords(probe: Probe, plain: string, here: string, comparison: Comparison): string {
  if (comparison.same) return 'same';
  const limit = 60;
  if (probe.kind === 'list') {
    const fewer = comparison.lines.filter((line) => line.startsWith('-')).length;
    const more = comparison.lines.length - fewer;
    return `${fewer} lines of the plain VM's missing or other, ${more} of its own`;
  }
  // Of a value with several lines, those that differ.
  const many = plain.includes('\n') || here.includes('\n');
  const own = comparison.lines.filter((line) => line.startsWith('+')).map((line) => line.slice(2));
  const lost = comparison.lines.filter((line) => line.startsWith('-')).map((line) => line.slice(2));
  const text = !many ? here : own.length > 0 ? own.join('; ') : `without: ${lost.join('; ')}`;
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}

/** Reads the report that pytest writes with `--junitxml`. Used by `live-suite.ts`. */

/** One test of a report. */
export interface ReportedCase {
  /** `file.py::test`. */
  name: string;
  result: 'passed' | 'failed' | 'skipped';
  seconds: number;
  /** What pytest says about a test that has not passed. */
  message: string;
}

const entities: Record<string, string> = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' };

function plain(text: string): string {
  return text.replace(/&(?:#(\d+)|#x([0-9a-f]+)|(\w+));/gi, (whole, decimal, hex, name) => {
    if (decimal) return String.fromCodePoint(Number(decimal));
    if (hex) return String.fromCodePoint(Number.parseInt(hex, 16));
    return entities[name] ?? whole;
  });
}

function attribute(tag: string, name: string): string {
  return plain(new RegExp(`\\b${name}="([^"]*)"`).exec(tag)?.[1] ?? '');
}

/** The tests of a report, in its order; an error before or after a test makes it a failed one. */
export function readJunit(xml: string): ReportedCase[] {
  // Within attributes and text pytest writes `<` and `>` as entities.
  return [...xml.matchAll(/<testcase\b([^>]*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g)].map(
    ([, tag = '', inside = '']) => {
      const file = attribute(tag, 'classname').split('.').at(-1);
      const failed = /<(?:failure|error)\b([^>]*)>([\s\S]*?)<\/(?:failure|error)>/.exec(inside);
      return {
        name: `${file}.py::${attribute(tag, 'name')}`,
        result: failed ? 'failed' : /<skipped\b/.test(inside) ? 'skipped' : 'passed',
        seconds: Number(attribute(tag, 'time')),
        message: failed
          ? `${attribute(failed[1] ?? '', 'message')}\n${plain(failed[2] ?? '').slice(-3_000)}`
          : '',
      };
    },
  );
}

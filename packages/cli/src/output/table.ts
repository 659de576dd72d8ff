/** Tables and lists for people: plain columns, no frames, so that they can be cut and grepped. */
import Table from 'cli-table3';

const noBorders = {
  top: '',
  'top-mid': '',
  'top-left': '',
  'top-right': '',
  bottom: '',
  'bottom-mid': '',
  'bottom-left': '',
  'bottom-right': '',
  left: '',
  'left-mid': '',
  mid: '',
  'mid-mid': '',
  right: '',
  'right-mid': '',
  middle: '  ',
};

/** Rows under a heading; only the heading when there are none. */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const made = new Table({
    head: [...heading],
    chars: noBorders,
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0, compact: true },
  });
  made.push(...rows.map((row) => row.map(oneLine)));
  return made
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n');
}

/** `name   value` lines; absent values are left out. */
export function properties(
  pairs: readonly (readonly [string, string | number | null | undefined])[],
): string {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  const width = Math.max(0, ...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${name.padEnd(width)}  ${value}`).join('\n');
}

// What comes from a guest or a user must not steer the terminal.
function oneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
  return text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ');
}

// Which RFD explains that a figure is over its limit: a line `Figure: NAME` in docs/rfd/NNNN-….md. Used by run.mjs and load/main.mjs.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../docs/rfd');

/** Figure name -> number of the RFD. */
export function readExplanations() {
  const explained = new Map();
  for (const file of readdirSync(folder).filter((name) => /^\d{4}-.*\.md$/.test(name))) {
    for (const match of readFileSync(path.join(folder, file), 'utf8').matchAll(/^Figure: (\S+)$/gm)) {
      explained.set(match[1], file.slice(0, 4));
    }
  }
  return explained;
}

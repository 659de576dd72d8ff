/** Progress on stderr: a bar on a terminal, a line for each step elsewhere, nothing when it is over quickly. */
import type { Output } from './output.js';
import { bytes } from './units.js';

/** Shows how far a transfer or a pull is. */
export interface Progress {
  update(doneBytes: number, totalBytes: number, text?: string): void;
  stop(): void;
}

/** A bar appears only if the work lasts this long. */
const showAfterMs = 300;

/** A bar on a terminal; else one line for each text, once. */
export async function startProgress(out: Output, what: string): Promise<Progress> {
  return out.stderr.isTTY ? bar(out, what) : lines(out, what);
}

async function bar(out: Output, what: string): Promise<Progress> {
  const { default: cliProgress } = await import('cli-progress');
  const begun = performance.now();
  const line = new cliProgress.SingleBar({
    stream: out.stderr as NodeJS.WriteStream,
    hideCursor: true,
    clearOnComplete: true,
    format: (options, parameters, payload: { text: string }) => {
      const { value, total } = parameters;
      if (total === 0) return `${payload.text}  ${bytes(value)}`;
      const filled = Math.round(Math.min(1, value / total) * 30);
      const drawn = '='.repeat(filled) + ' '.repeat(30 - filled);
      return `${payload.text} [${drawn}] ${bytes(value)} of ${bytes(total)}${options.barsize ? '' : ''}`;
    },
  });
  let shown = false;
  return {
    update(doneBytes, totalBytes, text = what) {
      if (!shown && performance.now() - begun < showAfterMs) return;
      if (!shown) {
        line.start(totalBytes, doneBytes, { text });
        shown = true;
      }
      line.setTotal(totalBytes);
      line.update(doneBytes, { text });
    },
    stop() {
      if (shown) line.stop();
    },
  };
}

function lines(out: Output, what: string): Progress {
  // A stage may come again in between; said once, it is known.
  const said = new Set<string>();
  return {
    update(_doneBytes, totalBytes, text = what) {
      if (said.has(text)) return;
      said.add(text);
      out.note(totalBytes > 0 ? `${text} (${bytes(totalBytes)})` : text);
    },
    stop() {},
  };
}

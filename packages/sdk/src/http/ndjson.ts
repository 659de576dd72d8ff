/** Reads newline-delimited JSON, whatever the chunk boundaries. Used for the progress of image pulls. */
import { ConnectionError, TooLargeError } from '../errors.js';

const lineMaxBytes = 1024 * 1024;

/** One value for each non-empty line. A last line without newline counts. */
export async function* readJsonLines(source: AsyncIterable<Uint8Array>): AsyncGenerator<unknown> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of source) {
    rest += decoder.decode(chunk, { stream: true });
    for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
      const line = rest.slice(0, end).trim();
      rest = rest.slice(end + 1);
      if (line !== '') yield parse(line);
    }
    if (rest.length > lineMaxBytes) {
      throw new TooLargeError('a line of the answer is too long', { code: 'ANSWER_TOO_LARGE' });
    }
  }
  rest += decoder.decode();
  if (rest.trim() !== '') yield parse(rest.trim());
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new ConnectionError('the answer broke off in the middle of a line', { code: 'BAD_ANSWER', cause });
  }
}

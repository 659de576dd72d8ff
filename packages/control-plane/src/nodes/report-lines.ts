/** Splits a byte stream into the JSON lines of the report stream. Holds what is left of a line between chunks. */
import type { SandboxReport } from '@sandlot/protocol';

/** One line of the report stream. */
export type ReportLine = SandboxReport | { synced: true } | { keepalive: true };

/** A report has 64 KiB of log at most; far more than that is not one. */
const maxLineBytes = 4 * 1024 * 1024;

/** Lines of a stream, parsed. Throws when a line is no JSON or too long. */
export async function* readReportLines(source: AsyncIterable<Buffer>): AsyncGenerator<ReportLine> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of source) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let from = 0;
    for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10, from)) {
      const line = rest.subarray(from, at).toString('utf8').trim();
      from = at + 1;
      if (line !== '') yield JSON.parse(line) as ReportLine;
    }
    rest = rest.subarray(from);
    if (rest.length > maxLineBytes)
      throw new Error(`a line of the report stream is longer than ${maxLineBytes} bytes`);
  }
}

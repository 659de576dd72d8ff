/**
 * The log of this process: lines of JSON on standard output, which `sandlot up` has opened as a file. A disk
 * without room must not end us: lines wait in memory, the newest beyond a limit are lost, counted, and said
 * once there is room again. The other daemon has the same file (`tools/checks` compares): what is below both, `protocol`,
 * has no logic, and must not bring pino into the SDK. Made by `main.ts`.
 */
import { destination, type Logger, type LoggerOptions, pino } from 'pino';

/** Bytes of lines that wait for room. */
const maxWaitingBytes = 256 * 1024;
/** How often a log that could not be written is tried again when nobody says anything, ms. */
const retryEveryMs = 5_000;

/** A logger that writes to an open file descriptor and survives that it cannot. */
export function openLog(options: LoggerOptions, descriptor = 1): Logger {
  const output = destination({ dest: descriptor, sync: true, maxLength: maxWaitingBytes });
  const log = pino(options, output);
  let lost = 0;
  let failure: NodeJS.ErrnoException | undefined;
  let retry: NodeJS.Timeout | undefined;
  // Without a listener the error would be an exception that nobody can catch, and the end of the process.
  output.on('error', (error: NodeJS.ErrnoException) => {
    failure = error;
    // Writing nothing writes what waits; nothing less than a write shows that there is room.
    retry ??= setInterval(() => output.write(''), retryEveryMs).unref();
  });
  output.on('drop', () => {
    lost += 1;
  });
  output.on('drain', () => {
    if (failure === undefined) return;
    const facts = { lostLines: lost, code: failure.code };
    clearInterval(retry);
    lost = 0;
    failure = undefined;
    retry = undefined;
    log.warn(facts, 'the log could not be written for a while; it can again');
  });
  return log;
}

/** Key material in a file of mode 0600, made on first use and never replaced. */
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, unlinkSync, writeSync } from 'node:fs';

/** Reads the file; if there is none, makes it from `generate`. Two processes at once end with the same content. */
export function readKeyFile(file: string, generate: () => Buffer): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const draft = `${file}.${process.pid}.new`;
  const handle = openSync(draft, 'w', 0o600);
  try {
    writeSync(handle, generate());
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
  try {
    // Unlike rename, link never replaces what another process has made meanwhile.
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    unlinkSync(draft);
  }
  return readFileSync(file);
}

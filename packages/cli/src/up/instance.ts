/** `instance.json`: who this instance is and with which flags its daemons run. */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import type { DaemonOptions } from './options.js';

/** Content of the file. */
export interface Instance {
  instanceId: string;
  createdAt: string;
  /** Empty again after `down`. */
  options: DaemonOptions;
}

/** The file, or undefined when this folder never had a server. */
export function readInstance(file: string): Instance | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Instance;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT' || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Writes it whole. */
export function writeInstance(file: string, instance: Instance): void {
  writeFileSync(`${file}.new`, `${JSON.stringify(instance, null, 2)}\n`, { mode: 0o644 });
  renameSync(`${file}.new`, file);
}

/** This package's version, as `package.json` has it. */
import { createRequire } from 'node:module';

/** For example `0.1.0`. */
export const version: string = (createRequire(import.meta.url)('../package.json') as { version: string })
  .version;

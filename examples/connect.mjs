// The connection of the examples to a running server.
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Sandlot } from '@sandlot/sdk';

/** URL and key: the environment's, else those of this checkout's server. */
export function connect() {
  const { SANDLOT_URL: url, SANDLOT_API_KEY: apiKey } = process.env;
  if (url && apiKey) return new Sandlot({ url, apiKey });
  const sandlot = fileURLToPath(new URL('../bin/sandlot', import.meta.url));
  const config = JSON.parse(execFileSync(sandlot, ['config', '--output', 'json'], { encoding: 'utf8' }));
  return new Sandlot({ url: config.url, apiKey: config.api_key });
}

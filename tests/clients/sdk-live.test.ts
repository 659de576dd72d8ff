/**
 * Every generation of `prime-sandboxes` passes the live tests of its own source distribution against this
 * server, except those in `not-yet.ts`.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pythonArchive } from '../driver/checkout.js';
import { TestServer } from '../driver/test-server.js';
import { liveSuiteOf, runLiveSuite } from './live-suite.js';
import { newestVersion } from './venv.js';

const known = [
  { version: '0.2.39', least: 33 },
  { version: '0.3.2', least: 42 },
  { version: '0.5.1', least: 42 },
] as const;
/** As long as an environment, a suite and a busy host may take. */
const testMs = 2_200_000;

let server: TestServer;
let key: string;

beforeAll(async () => {
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, 'python:3.11-slim'], { timeoutMs: 300_000 });
  key = (await server.json<{ api_key: string }>(['config'])).api_key;
}, 600_000);
afterAll(() => server?.close(), 300_000);

describe('prime-sandboxes passes its own live tests', () => {
  it.each(known)(
    '$version',
    async ({ version, least }) => {
      await runLiveSuite(server, key, version, least);
    },
    testMs,
  );

  it(
    'the newest that pip finds',
    async () => {
      const { bin } = await liveSuiteOf('0.5.1');
      const newest = await newestVersion('prime-sandboxes', bin);
      if (known.some(({ version }) => version === newest)) {
        process.stdout.write(`the newest prime-sandboxes is ${newest}: it has been run above\n`);
        expect(newest).toBe(known.at(-1)?.version);
      } else await runLiveSuite(server, key, newest, 42);
    },
    testMs,
  );
});

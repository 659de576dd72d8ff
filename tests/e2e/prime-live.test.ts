/** The live tests of Prime's own SDK, of the newest version known here; all generations: tests/clients. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { complaintsOf, liveSuiteOf, runLiveSuite } from '../clients/live-suite.js';
import { pythonArchive } from '../driver/checkout.js';
import { TestServer } from '../driver/test-server.js';

const version = '0.5.1';
let server: TestServer;
let key: string;

beforeAll(async () => {
  await liveSuiteOf(version);
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, 'python:3.11-slim'], { timeoutMs: 300_000 });
  key = (await server.json<{ api_key: string }>(['config'])).api_key;
}, 900_000);
afterAll(() => server?.close(), 300_000);

it(`prime-sandboxes ${version} passes its own live tests`, { timeout: 900_000 }, () =>
  runLiveSuite(server, key, version, 42),
);

it('a test that fails unexpectedly, passes unexpectedly or is gone is told', () => {
  const image = 'test_images_integration_live.py::test_';
  const told = complaintsOf(`prime-sandboxes ${version}`, [
    { name: 'a.py::x', result: 'failed', seconds: 1, message: 'because' },
    { name: 'a.py::y', result: 'skipped', seconds: 1, message: '' },
    { name: 'a.py::z', result: 'passed', seconds: 1, message: '' },
    { name: `${image}single_source_transfer_live`, result: 'passed', seconds: 1, message: '' },
    { name: `${image}dockerfile_build_full_flow_live`, result: 'failed', seconds: 1, message: '501' },
  ]);
  expect(told).toEqual([
    'a.py::x failed: because',
    'a.py::y skipped: ',
    `${image}single_source_transfer_live passes: take it out of not-yet.ts`,
    `${image}bulk_source_transfer_partial_failure_live stands in not-yet.ts and has not run`,
  ]);
});

/** `sandlot up` with real daemons, whose machines are fakes: two at once make one server. */
import { createServer } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { World } from './world.js';

let world: World;
beforeEach(() => {
  world = new World();
});
afterEach(async () => {
  expect((await world.run(['down'])).code).toBe(0);
  world.remove();
});

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

it('two at once make one server, and the second finds what the first has made', {
  timeout: 120_000,
}, async () => {
  const url = `127.0.0.1:${await freePort()}`;
  const flags = ['--listen', url, '--driver', 'fake', '--agent-binary', '/bin/false', '--prebuild', 'none'];
  const up = () => world.run(['up', '--detach', '--output', 'json', ...flags]);
  const both = await Promise.all([up(), up()]);
  expect(both.map(({ code, stderr }) => (code === 0 ? 0 : stderr))).toEqual([0, 0]);
  const [first, second] = both
    .map(({ stdout }) => JSON.parse(stdout) as { started: string[]; processes: unknown; url: string })
    .sort((a, b) => b.started.length - a.started.length);
  expect(first?.started).toEqual(['node agent', 'control plane']);
  expect(second).toEqual({ ...first, started: [] });
  expect(first?.url).toBe(`http://${url}`);
  const keys = JSON.parse((await world.run(['key', 'ls', '--output', 'json'])).stdout) as unknown[];
  expect(keys).toHaveLength(1);
});

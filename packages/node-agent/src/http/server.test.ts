import { mkdtempSync, rmSync } from 'node:fs';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { createNodeServer } from './server.js';
import type { ServerParts } from './server-parts.js';

it('its log has the id of each request, of the API and of the gateway, and no query', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sandlot-node-'));
  const socketPath = join(folder, 's');
  const lines: string[] = [];
  const gateway = {
    owns: (url: string) => url.startsWith('/gw/'),
    handle: async (_request: IncomingMessage, response: ServerResponse) => response.writeHead(503).end(),
  };
  const sandboxes = {
    delete: async () => {
      throw new Error('the machine cannot be ended');
    },
  };
  const log = pino({}, { write: (line: string) => void lines.push(line) });
  const server = createNodeServer({ gateway, sandboxes, log } as unknown as ServerParts);
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  const ask = (method: string, path: string, id: string) =>
    new Promise<number | undefined>((resolve, reject) => {
      const sent = http.request({ socketPath, method, path, headers: { 'x-request-id': id } }, (answer) => {
        answer.resume().once('end', () => resolve(answer.statusCode));
      });
      sent.once('error', reject).end();
    });
  try {
    expect(await ask('DELETE', '/v1/sandboxes/sb1?generation=1', 'r-1')).toBe(500);
    expect(await ask('POST', '/gw/u/sb1/read-file?path=secret', 'r-2')).toBe(503);
    const said = () => lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    await expect.poll(() => said().map(({ requestId }) => requestId)).toContain('r-2');
    expect(said()).toContainEqual(expect.objectContaining({ requestId: 'r-1', msg: 'node call failed' }));
    expect(said()).toContainEqual(
      expect.objectContaining({ requestId: 'r-2', path: '/gw/u/sb1/read-file', status: 503 }),
    );
    expect(lines.join()).not.toContain('secret');
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    rmSync(folder, { recursive: true, force: true });
  }
});

import { type AddressInfo, createServer } from 'node:net';
import { expect, it } from 'vitest';
import type { DaemonSpec } from '../src/up/daemon.js';
import { requireFreeAddress } from '../src/up/free-address.js';

it('the address of a daemon is taken by whatever listens there', async () => {
  const listener = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  const { port } = listener.address() as AddressInfo;
  const spec = { role: 'control plane', health: { url: `http://127.0.0.1:${port}` } } as DaemonSpec;
  await expect(requireFreeAddress(spec)).rejects.toThrow(`127.0.0.1:${port}`);
  await new Promise((resolve) => listener.close(resolve));
  await requireFreeAddress(spec);
});

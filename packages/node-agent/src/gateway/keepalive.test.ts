import { expect, it } from 'vitest';
import { withKeepalive } from './keepalive.js';

it('fills silence and passes every event in order', async () => {
  async function* source() {
    yield 'a';
    await new Promise((resolve) => setTimeout(resolve, 60));
    yield 'b';
  }
  const seen: string[] = [];
  for await (const event of withKeepalive(source(), 20)) seen.push(event);
  expect(seen[0]).toBe('a');
  expect(seen.at(-1)).toBe('b');
  expect(seen.filter((event) => event === 'keepalive').length).toBeGreaterThan(0);
});

it('ends its source when the reader leaves', async () => {
  let ended = false;
  async function* source() {
    try {
      for (;;) yield 1;
    } finally {
      ended = true;
    }
  }
  for await (const _event of withKeepalive(source(), 1_000)) break;
  expect(ended).toBe(true);
});

it('passes the failure of its source on', async () => {
  async function* source() {
    yield 1;
    throw new Error('broken');
  }
  const read = async () => {
    for await (const _event of withKeepalive(source(), 1_000));
  };
  await expect(read()).rejects.toThrow('broken');
});

/** Holds the bound of a reboot loop. */
import { expect, it } from 'vitest';
import { RebootLimit } from './reboot-limit.js';

it('admits ten reboots in five minutes, and more over a longer time', () => {
  const limit = new RebootLimit();
  for (let at = 0; at < 10; at++) expect(limit.admit(at * 1000)).toBe(true);
  expect(limit.admit(10_000)).toBe(false);
  expect(limit.admit(10_000 + 5 * 60_000)).toBe(true);
});

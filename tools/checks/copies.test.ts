/** Files that stand twice, because what both places may import must not hold them, are the same in both. */
import { expect, it } from 'vitest';
import { readText } from './source-files.js';

/** Without the comment at its head, which may name the other place. */
function bodyOf(text: string): string {
  return text.replace(/^\/\*\*[\s\S]*?\*\/\n/, '');
}

it('leaves out the head alone', () => {
  expect(bodyOf('/** One.\n * Two. */\n/** Kept. */\nconst a = 1;\n')).toBe('/** Kept. */\nconst a = 1;\n');
  expect(bodyOf('const a = 1; /** Kept. */\n')).toBe('const a = 1; /** Kept. */\n');
});

/**
 * Why twice: the control plane may import `protocol` alone, and that is in the SDK too, which must not bring pino to
 * the client; a relative import may not leave its package. A package of its own for one
 * function is more than this check: worth it once the daemons have a second thing in common.
 */
it('both daemons open their logs by the same code', () => {
  const body = bodyOf(readText('packages/control-plane/src/log-output.ts'));
  expect(body).toContain('export function openLog');
  // Whoever changes one changes the other.
  expect(bodyOf(readText('packages/node-agent/src/log-output.ts'))).toBe(body);
});

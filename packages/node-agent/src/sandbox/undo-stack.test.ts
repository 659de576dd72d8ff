import { expect, it } from 'vitest';
import { UndoStack } from './undo-stack.js';

it('undoes in reverse order, each once, and goes on after a failure', async () => {
  const seen: string[] = [];
  const stack = new UndoStack();
  stack.push('first', async () => void seen.push('first'));
  stack.push('second', async () => {
    throw new Error('no');
  });
  stack.push('third', async () => void seen.push('third'));
  const failed = await stack.run();
  expect(seen).toEqual(['third', 'first']);
  expect(failed.map(({ name }) => name)).toEqual(['second']);
  expect(await stack.run()).toEqual([]);
  expect(seen).toEqual(['third', 'first']);
});

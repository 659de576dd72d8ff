import { expect, it } from 'vitest';
import { NodeRefusedError, NodeUnreachableError } from '../nodes/node-error.js';
import { AppError } from './app-error.js';
import { fromNode } from './node-failure.js';

const failedBy = (cause: unknown): Promise<unknown> =>
  fromNode('pull the image', () => Promise.reject(cause)).catch((error: unknown) => error);

it.each([
  [400, 'INVALID_REQUEST'],
  [404, 'NOT_FOUND'],
  [409, 'CONFLICT'],
  [422, 'INVALID_REQUEST'],
  [507, 'STORAGE_FULL'],
  [500, 'NODE_ERROR'],
  [418, 'NODE_ERROR'],
])('a refusal with %i is told as %s, with the words of the node', async (status, code) => {
  const cause = new NodeRefusedError('the reason', status, '');
  const error = await failedBy(cause);
  expect(error).toBeInstanceOf(AppError);
  expect(error).toMatchObject({ code, message: 'Could not pull the image: the reason', cause });
});

it('a node that cannot be reached is told as such, and how to look', async () => {
  const cause = new NodeUnreachableError('connect ENOENT');
  const error = await failedBy(cause);
  expect(error).toMatchObject({ code: 'NODE_UNAVAILABLE', cause });
  expect((error as Error).message).toContain('sandlot status');
});

it('any other error comes back as it is, and an answer too', async () => {
  const bug = new TypeError('a bug');
  expect(await failedBy(bug)).toBe(bug);
  expect(await fromNode('ask', async () => 7)).toBe(7);
});

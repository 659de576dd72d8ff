import { Type } from '@sinclair/typebox';
import { expect, it } from 'vitest';
import { CreateUser } from './account.js';
import { compileSchema, OneOf } from './schema.js';

it('an issue says what would be right', () => {
  const shape = Type.Object({
    count: Type.Integer({ minimum: 1, maximum: 16 }),
    kind: OneOf('a', 'b'),
  });
  const check = compileSchema(shape);
  expect(check({ count: 3, kind: 'a' })).toEqual([]);
  expect(check({ count: 17, kind: 'c' })).toEqual([
    { param: 'count', details: 'Must be at most 16.' },
    { param: 'kind', details: 'Must be one of a, b.' },
  ]);
  expect(check({ count: 0, kind: 'a' })).toEqual([{ param: 'count', details: 'Must be at least 1.' }]);
  expect(check({ count: '1', kind: 'a' })).toEqual([{ param: 'count', details: 'Expected integer.' }]);
  expect(compileSchema(CreateUser)({ name: 'bad name' })[0]?.details).toMatch(/^Must be: letters, digits/);
});

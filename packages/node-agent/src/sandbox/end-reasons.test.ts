import { ImageError } from '@sandlot/images';
import { expect, it } from 'vitest';
import { causeOfStartError, MachineFailedError } from './end-reasons.js';

it('tells an image that cannot be had from one that cannot be used, and from a host without room', () => {
  const reasonOf = (code: ConstructorParameters<typeof ImageError>[0]) =>
    causeOfStartError(new ImageError(code, 'why')).reason;
  expect(reasonOf('unreachable')).toBe('IMAGE_PULL_FAILED');
  expect(reasonOf('wrong-platform')).toBe('IMAGE_INVALID');
  expect(reasonOf('no-space')).toBe('START_FAILED');
});

it('says that the host ran out of memory when that ended the machine of a start', () => {
  const lost = (cause: 'host-out-of-memory' | 'killed') =>
    causeOfStartError(new MachineFailedError('its machine ended', { cause, detail: 'x' }));
  expect(lost('host-out-of-memory').reason).toBe('HOST_OUT_OF_MEMORY');
  expect(lost('killed')).toEqual({
    reason: 'START_FAILED',
    message: 'The sandbox could not be started: its machine ended',
  });
});

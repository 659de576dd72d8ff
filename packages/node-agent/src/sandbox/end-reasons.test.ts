import { ImageError } from '@sandlot/images';
import { MachineEndedError } from '@sandlot/vmm';
import { expect, it } from 'vitest';
import { GuestCallError } from '../guest/guest-client.js';
import { causeOfMachineEnd, causeOfStartError } from './end-reasons.js';
import { ViewRefusedError } from './view-refused.js';

it('tells an image that cannot be had from one that cannot be used, and from a host without room', () => {
  const reasonOf = (code: ConstructorParameters<typeof ImageError>[0]) =>
    causeOfStartError(new ImageError(code, 'why'), 'my/image').reason;
  expect(reasonOf('unreachable')).toBe('IMAGE_PULL_FAILED');
  expect(reasonOf('wrong-platform')).toBe('IMAGE_INVALID');
  expect(reasonOf('no-space')).toBe('START_FAILED');
});

it('names the image, and how its machine ended', () => {
  const { message } = causeOfStartError(new ImageError('truncated', 'a layer is short'), 'my/image');
  expect(message).toContain('my/image');
  const lost = causeOfStartError(
    new MachineEndedError({ cause: 'host-out-of-memory', detail: 'x' }),
    'my/image',
  );
  expect(lost.reason).toBe('HOST_OUT_OF_MEMORY');
});

it('tells a guest without memory from one with another panic', () => {
  const reasonOf = (detail: string) => causeOfMachineEnd({ cause: 'guest-panic', detail }).reason;
  expect(reasonOf('Kernel panic - not syncing: System is deadlocked on memory')).toBe('OOM_KILLED');
  expect(reasonOf('Kernel panic - not syncing: Attempted to kill init!')).toBe('GUEST_PANIC');
});

it('a view that the guest would not make has a reason of its own, with the path', () => {
  const cause = causeOfStartError(new ViewRefusedError(new Error('/srv/shop does not exist')), 'my/image');
  expect(cause.reason).toBe('VIEW_INVALID');
  expect(cause.message).toContain('/srv/shop does not exist. Its paths must exist in the image');
});

it('tells an image without an init as such', () => {
  const cause = causeOfStartError(
    new GuestCallError(422, 'ENOINIT', 'the image has no init at /sbin/init: No such file or directory'),
    'my/image',
  );
  expect(cause.reason).toBe('INIT_NOT_FOUND');
  expect(cause.message).toMatch(/my\/image.*\/sbin\/init.*without init/);
});

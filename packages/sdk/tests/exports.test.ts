/** The public names of the SDK: adding or losing one is a decision. */
import { expect, it } from 'vitest';
import * as sdk from '../src/index.js';

it('exports exactly these values', () => {
  expect(Object.keys(sdk).sort()).toEqual([
    'AbortedError',
    'AgentSandbox',
    'AuthenticationError',
    'CheckpointFailedError',
    'ConflictError',
    'ConnectionError',
    'DeadlineError',
    'FileNotFoundError',
    'NotBuiltError',
    'NotFoundError',
    'PermissionError',
    'RateLimitError',
    'Sandbox',
    'SandboxNotRunningError',
    'Sandlot',
    'SandlotError',
    'ServerError',
    'TooLargeError',
    'ValidationError',
    'defaultUrl',
    'endedStatuses',
    'sdkVersion',
    'signalName',
    'signalNumber',
  ]);
});

it('has one root for all errors', () => {
  for (const [name, value] of Object.entries(sdk)) {
    if (name.endsWith('Error'))
      expect(
        value === sdk.SandlotError || (value as { prototype: unknown }).prototype instanceof sdk.SandlotError,
      ).toBe(true);
  }
});

import { expect, it } from 'vitest';
import { OptionError, parseOptions } from './options.js';

const least = ['--data', '/d', '--socket', '/s', '--public-key', '/k'];

it('has defaults for everything but the three paths', () => {
  const options = parseOptions([...least, '--instance', 'ab12']);
  expect(options).toMatchObject({
    cpuOvercommit: 8,
    memoryOvercommit: 2,
    diskOvercommit: 4,
    kvm: 'auto',
    cpuModel: 'host',
    driver: 'qemu',
  });
  expect(options.prebuild).toEqual([
    { vcpus: 1, memoryMiB: 1024 },
    { vcpus: 1, memoryMiB: 2048 },
  ]);
});

it.each([
  [['--data', '/d'], /--socket/],
  [[...least, '--instance', 'xyz'], /--instance/],
  [[...least, '--cpu-overcommit', '0'], /--cpu-overcommit/],
  [[...least, '--kvm', 'maybe'], /--kvm/],
  [[...least, '--cpu-model', 'EPYC,id=x'], /--cpu-model/],
  [[...least, '--allow-private', '10.0.0'], /--allow-private/],
  [[...least, '--subnet', 'fd00::/8'], /--subnet/],
  [[...least, '--allow-host-port', '70000'], /--allow-host-port/],
  [[...least, '--allow-host-port', '1.5'], /--allow-host-port/],
  [[...least, '--prebuild', 'big'], /--prebuild/],
  [[...least, '--run-children-as', 'root'], /--run-children-as/],
])('names the flag that cannot be used: %j', (argv, message) => {
  expect(() => parseOptions(argv)).toThrow(message);
  expect(() => parseOptions(argv)).toThrow(OptionError);
});

it('knows none and several templates to build ahead', () => {
  expect(parseOptions([...least, '--prebuild', 'none']).prebuild).toEqual([]);
  expect(parseOptions([...least, '--prebuild', '2x512', '--prebuild', '1x256']).prebuild).toHaveLength(2);
});

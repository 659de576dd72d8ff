import { expect, it } from 'vitest';
import { effectiveShape } from './shape.js';

it.each([
  [0.1, 0.1, { vcpus: 1, memoryMiB: 256, cpuLimit: 0.1 }],
  [1, 1, { vcpus: 1, memoryMiB: 1024, cpuLimit: 0 }],
  [1.5, 1.01, { vcpus: 2, memoryMiB: 1280, cpuLimit: 1.5 }],
  [16, 64, { vcpus: 16, memoryMiB: 65_536, cpuLimit: 0 }],
])('%d CPUs and %d GiB are booked in whole steps', (cpu, memory, expected) => {
  expect(effectiveShape(cpu, memory, 5)).toMatchObject({ ...expected, diskGiB: 5 });
});

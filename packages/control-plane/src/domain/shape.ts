/** From what was asked for to what a machine gets: whole vCPUs, memory in steps, a limit for fractions. */
import type { Shape } from './record.js';

/** Memory comes in steps of this many MiB, and one step is the least. */
export const memoryStepMiB = 256;

/** Most vCPUs of one machine. */
const maxVcpus = 16;

/** The smallest disk: file systems end at whole GiB. */
const minDiskGiB = 1;

/** The effective shape of a request; `gb` means GiB. */
export function effectiveShape(cpuCores: number, memoryGb: number, diskGb: number): Shape {
  const vcpus = Math.min(maxVcpus, Math.max(1, Math.ceil(cpuCores)));
  const memoryMiB = Math.max(memoryStepMiB, Math.ceil((memoryGb * 1024) / memoryStepMiB) * memoryStepMiB);
  return {
    vcpus,
    memoryMiB,
    diskGiB: Math.max(minDiskGiB, diskGb),
    cpuLimit: cpuCores === vcpus ? 0 : cpuCores,
  };
}

/** Bytes of a disk, in whole MiB. */
export function diskBytes(diskGiB: number): number {
  return Math.ceil(diskGiB * 1024) * 1024 * 1024;
}

/** What stays booked of a paused sandbox: its disk, and its memory, which is a file by then. */
export function bookedWhilePaused(shape: Shape): Shape {
  return { ...shape, vcpus: 0, memoryMiB: 0, diskGiB: shape.diskGiB + shape.memoryMiB / 1024 };
}

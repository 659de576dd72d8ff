/** What the node agent uses of this package: the contract, both drivers, and template folders. */
export * from './driver.js';
export type { FakeDriverOptions, FakeStep } from './fake/fake-driver.js';
export { createFakeDriver } from './fake/fake-driver.js';
export { type ProcessStat, parseProcessStat } from './process/process-identity.js';
export type { QemuDriverOptions } from './qemu/describe-host.js';
export { createQemuDriver } from './qemu/qemu-driver.js';
export { readSnapshot, snapshotPaths } from './snapshot-files.js';
export { syncToDisk } from './sync-to-disk.js';
export { readTemplate } from './template-files.js';

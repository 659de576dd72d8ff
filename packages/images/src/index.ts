/** What other packages use of the image store. */
export * from './limits.js';
export * from './open-image-store.js';
export { sparingly } from './progress.js';
export { type DiskFit, fitDisk } from './rootfs/disk-fit.js';
export { openStoreProcess } from './service/store-process.js';
export * from './store.js';

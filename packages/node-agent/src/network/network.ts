/**
 * What the rest of the node agent and its tests see of networks. With root: one namespace for each sandbox, made
 * ahead in a pool and never used twice (`openTapNetworks`). Without, or without /dev/net/tun: QEMU's user network (`openUserNetworks`).
 * The contract is in `contract.ts`.
 */
export * from './contract.js';
export * from './network-probes.js';
export { parseEgressPolicy } from './policy/egress-policy.js';
export { openTapNetworks, type TapNetworkOptions } from './tap-networks.js';
export { openUserNetworks, type UserNetworkOptions } from './user-networks.js';

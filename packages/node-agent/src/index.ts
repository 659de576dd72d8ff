/** What tests and benchmarks use of the node agent in their own process. */
export { type NodeAgent, startNodeAgent } from './agent.js';
export { GuestChannel, GuestUnreachableError } from './guest/channel.js';
export { GuestCallError, GuestClient } from './guest/guest-client.js';
export { type NodeAgentOptions, parseOptions } from './options.js';

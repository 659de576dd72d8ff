export * from './egress.js';
export * from './gateway.js';
export * from './gen/command_session_pb.js';
export * from './guest-api.js';
export * from './node-api.js';

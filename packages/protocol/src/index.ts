/** Everything that crosses a wire. Other packages import from here; no logic lives in this package. */
export * from './account.js';
export * from './egress.js';
export * from './endings.js';
export * from './errors.js';
export * from './gateway.js';
export * from './gen/command_session_pb.js';
export * from './guest-api.js';
export * from './image.js';
export * from './node-api.js';
export * from './not-yet.js';
export * from './openapi.js';
export * from './routes.js';
export * from './sandbox.js';
export * from './sandbox-batch.js';
export * from './schema.js';
export * from './system.js';
export * from './version.js';

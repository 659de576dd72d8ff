/** `@sandlot/sdk`: everything that is public. The list is tested (`tests/exports.test.ts`). */
export type {
  ApiKey,
  CreatedKey,
  ErrorContext,
  SystemStatus,
  Team,
  TeamMember,
  User,
  WhoAmI,
} from '@sandlot/protocol';
export { AgentSandbox } from './agent-sandbox.js';
export { defaultUrl, Sandlot, type SandlotOptions, sdkVersion } from './client.js';
export * from './errors.js';
export type {
  ExecOptions,
  ExecResult,
  OutputEvent,
  RunOptions,
  RunResult,
  SignalName,
} from './exec/exec-types.js';
export type { SandboxProcess } from './exec/process.js';
export { signalName, signalNumber } from './exec/signals.js';
export type { SkipReport } from './files/pack-directory.js';
export type { FileWindow, SandboxFileStat, TransferOptions, UploadResult } from './files/sandbox-files.js';
export type { AgentAccess } from './gateway-access.js';
export type { CallOptions } from './http/api-client.js';
export type { CheckpointInfo, CheckpointOptions } from './resources/checkpoints.js';
export type { ImageDetails, ImageEvent, ImageInfo, ImageProgress, RegistryAuth } from './resources/images.js';
export type { WaitOptions } from './resources/sandbox-records.js';
export {
  type CreateSandbox,
  type DeleteResult,
  endedStatuses,
  type ForkOptions,
  type ForkResult,
  type ListSandboxes,
  type RollbackOptions,
  type SandboxInfo,
  type SandboxState,
  type SandboxStatus,
} from './resources/sandbox-types.js';
export { Sandbox } from './sandbox.js';
export type { View } from './views.js';

/** What a sandbox's handle asks of the server's records; `sandboxes.ts` answers it. */
import type { ErrorContext } from '@sandlot/protocol';
import type { CallOptions } from '../http/api-client.js';
import type { ForkOptions, ForkResult, RollbackOptions, SandboxInfo } from './sandbox-types.js';

/** Options of {@link SandboxRecords.waitUntilRunning}. */
export interface WaitOptions {
  signal?: AbortSignal | undefined;
  /** Called with each state that was seen. */
  onState?: ((info: SandboxInfo) => void) | undefined;
}

/** The calls about one sandbox. */
export interface SandboxRecords {
  info(id: string, options?: CallOptions): Promise<SandboxInfo>;
  waitUntilRunning(id: string, options?: WaitOptions): Promise<SandboxInfo>;
  logs(id: string, options?: CallOptions): Promise<string>;
  errorContext(id: string, options?: CallOptions): Promise<ErrorContext>;
  pause(id: string, options?: CallOptions): Promise<SandboxInfo>;
  resume(id: string, options?: CallOptions): Promise<SandboxInfo>;
  rollback(
    id: string,
    checkpointId: string,
    how?: RollbackOptions,
    options?: CallOptions,
  ): Promise<SandboxInfo>;
  forkInfos(id: string, fork: ForkOptions, options?: CallOptions): Promise<ForkResult<SandboxInfo>>;
  delete(id: string, options?: CallOptions): Promise<void>;
}

/** `client.server`: what runs there, and whether it answers. */
import type { ApiClient, CallOptions } from '../http/api-client.js';

/** State of the server and its node. */
export interface ServerStatus {
  version: string;
  accelerator?: string;
  acceleratorReason?: string;
  networkMode?: string;
  dataFolder?: string;
  processes: { pid: number; role: string }[];
  machines: { id: string; pid: number }[];
  sandboxes?: Record<string, number>;
  warnings?: string[];
  [key: string]: unknown;
}

/** Calls about the server. */
export class Server {
  constructor(private readonly api: ApiClient) {}

  /** Version, accelerator, folder, our processes, machines, counts. */
  status(options: CallOptions = {}): Promise<ServerStatus> {
    return this.api.call({ method: 'GET', path: '/status', ...options });
  }
}

/** `client.server`: what runs there, and as whom we are asking. */
import type { SystemStatus, WhoAmI } from '@sandlot/protocol';
import type { ApiClient, CallOptions } from '../http/api-client.js';

/** Calls about the server. */
export class Server {
  constructor(private readonly api: ApiClient) {}

  /** Version, accelerator, folder, our processes, machines, counts. */
  status(options: CallOptions = {}): Promise<SystemStatus> {
    return this.api.call({ method: 'GET', path: '/status', ...options });
  }

  /** Whose key this is. */
  async whoAmI(options: CallOptions = {}): Promise<WhoAmI['data']> {
    return (await this.api.call<WhoAmI>({ method: 'GET', path: '/user/whoami', ...options })).data;
  }
}

/**
 * A client that may administrate: by the key of the environment, else by the admin socket where this
 * user can open it, else by the key of the configuration. Used by `user`, `team`, `key`.
 */
import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import type { Sandlot } from '@sandlot/sdk';
import type { CliContext } from '../context.js';

/** The socket is asked only for the server on this machine: one elsewhere has its own accounts. */
export async function adminClient(context: CliContext): Promise<Sandlot> {
  const { url, apiKey, data } = context.settings();
  // Given for this call: who gives a key wants to act with it, and see what it may do.
  if (apiKey?.from === 'environment') return context.client();
  const socket = path.join(data.value, 'run', 'admin.sock');
  const isLocal = ['127.0.0.1', 'localhost', '[::1]'].includes(new URL(url.value).hostname);
  if (isLocal && canOpen(socket)) {
    const { Sandlot } = await import('@sandlot/sdk');
    return new Sandlot({ url: `unix:${socket}`, apiKey: '' });
  }
  return context.client();
}

function canOpen(socket: string): boolean {
  try {
    accessSync(socket, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * A client that may administrate: by the key of the environment, else by the admin socket where this
 * user can open it, else by the key of the configuration. Used by `user`, `team`, `key`.
 */
import { accessSync, constants } from 'node:fs';
import type { Sandlot } from '@sandlot/sdk';
import type { CliContext } from '../context.js';
import { readInstance } from '../up/instance.js';
import { layoutOf } from '../up/layout.js';
import { urlsOf } from '../up/options.js';

/** The socket is asked only for the server on this machine: one elsewhere has its own accounts. */
export async function adminClient(context: CliContext): Promise<Sandlot> {
  const { url, apiKey, data } = context.settings();
  // Given for this call: who gives a key wants to act with it, and see what it may do.
  if (apiKey?.from === 'environment') return context.client();
  const socket = layoutOf(data.value).adminSocket;
  if (isOfThisMachine(url.value, data.value) && canOpen(socket)) {
    const { Sandlot } = await import('@sandlot/sdk');
    return new Sandlot({ url: `unix:${socket}`, apiKey: '' });
  }
  return context.client();
}

/** By its name, or because the server of the data folder is told to be reached there: with TLS `up` writes its public URL. */
function isOfThisMachine(url: string, data: string): boolean {
  if (['127.0.0.1', 'localhost', '[::1]'].includes(new URL(url).hostname)) return true;
  const server = readInstance(layoutOf(data).instanceFile);
  return server !== undefined && urlsOf(server.options).url === url.replace(/\/+$/, '');
}

function canOpen(socket: string): boolean {
  try {
    accessSync(socket, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** After `up`: a key that works is in the configuration of the user who called it. */
import path from 'node:path';
import { AuthenticationError, Sandlot } from '@sandlot/sdk';
import { CliError } from '../cli-error.js';
import type { CliContext } from '../context.js';
import { configPath, readConfigFile, writeConfigFile } from '../settings.js';
import type { LocalServer } from './local-server.js';
import { findUser } from './service-user.js';

/** What was done about the key; `unclear`: one is there, and the server could not be asked about it. */
export type KeyOutcome = 'kept' | 'written' | 'unclear';

/** Writes url and key to the configuration, unless a key there works already. Makes one through the admin socket. */
export async function ensureKey(context: CliContext, server: LocalServer): Promise<KeyOutcome> {
  const file = configPath(context.homeFolder, context.env);
  const config = readConfigFile(file);
  const isThisServer = (config.url ?? server.url) === server.url;
  const known = context.env['SANDLOT_API_KEY'] || (isThisServer ? config.api_key : undefined);
  const state = known ? await stateOf(server.url, known) : 'refused';
  if (state !== 'refused') {
    if (config.api_key === known && config.url === undefined) writeConfigFile(file, { url: server.url });
    return state === 'works' ? 'kept' : 'unclear';
  }
  const key = await makeKey(server);
  const change = { url: server.url, api_key: key };
  writeConfigFile(file, change);
  writeForSudoUser(context, file, change);
  return 'written';
}

/** Only a server that says so has refused it: it may be slow, its public URL may lead elsewhere or past a proxy, or its certificate is not trusted here. */
async function stateOf(url: string, key: string): Promise<'works' | 'refused' | 'unclear'> {
  const client = new Sandlot({ url, apiKey: key, maxRetries: 1, timeoutMs: 5_000 });
  try {
    await client.server.status();
    return 'works';
  } catch (error) {
    return error instanceof AuthenticationError ? 'refused' : 'unclear';
  } finally {
    client.close();
  }
}

async function makeKey(server: LocalServer): Promise<string> {
  const client = new Sandlot({ url: `unix:${server.layout.adminSocket}`, apiKey: '', maxRetries: 2 });
  try {
    return (await client.accounts.createKey({ user: 'admin', name: 'first' })).key;
  } catch (cause) {
    throw new CliError(`the server runs, but no key could be made through ${server.layout.adminSocket}`, {
      cause,
      hint: 'Try `sandlot key create`, then `sandlot config set api_key KEY`.',
    });
  } finally {
    client.close();
  }
}

/** With sudo, HOME is often root's: the person behind it wants to use the server too. */
function writeForSudoUser(
  context: CliContext,
  written: string,
  change: { url: string; api_key: string },
): void {
  const name = context.env['SUDO_USER'];
  const user = context.isRoot && name && name !== 'root' ? findUser(name) : undefined;
  if (!user) return;
  const file = path.join(user.home, '.config', 'sandlot', 'config.json');
  if (file === written) return;
  writeConfigFile(file, change, user);
}

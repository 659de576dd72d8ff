/** `sandlot rm`: by ids, by label, or everything of one's own. */
import type { DeleteResult, Sandlot } from '@sandlot/sdk';
import { CliError, exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { confirm } from '../output/confirm.js';

/** Its options. */
export interface RemoveOptions extends OutputOptions {
  label?: string[];
  all?: boolean;
  yes?: boolean;
}

/** The action. */
export async function run(context: CliContext, [ids]: [string[]], options: RemoveOptions): Promise<number> {
  const ways = [ids.length > 0, options.label !== undefined, options.all === true].filter(Boolean).length;
  if (ways !== 1) {
    throw new CliError(
      ways === 0 ? 'nothing to remove was named' : 'ids, --label and --all exclude each other',
      {
        hint: 'sandlot rm ID…, or sandlot rm --label LABEL, or sandlot rm --all',
        exitCode: exitCodes.usage,
      },
    );
  }
  const client = await context.client();
  if (options.all && !options.yes && !(await confirmAll(context, client))) return exitCodes.failed;
  const result = await remove(client, ids, options);
  if (options.output === 'json') context.out.json(result);
  else {
    for (const id of result.succeeded) context.out.line(id);
    for (const { id, error } of result.failed) context.out.note(`sandlot rm: ${id}: ${error}`);
    if (result.succeeded.length === 0 && result.failed.length === 0) context.out.note('nothing to remove');
  }
  return result.failed.length > 0 ? exitCodes.failed : 0;
}

async function remove(client: Sandlot, ids: string[], options: RemoveOptions): Promise<DeleteResult> {
  if (options.label) return client.sandboxes.deleteMany({ labels: options.label });
  if (options.all) return client.sandboxes.deleteMany({ all: true });
  const found: string[] = [];
  const failed: DeleteResult['failed'] = [];
  // One that is wrong does not keep the others.
  for (const id of ids) {
    try {
      found.push((await client.sandboxes.find(id)).id);
    } catch (error) {
      if (
        (error as { status?: number }).status !== 404 &&
        (error as { code?: string }).code !== 'AMBIGUOUS_ID'
      ) {
        throw error;
      }
      failed.push({ id, error: error instanceof Error ? error.message : String(error) });
    }
  }
  if (found.length === 0) return { succeeded: [], failed };
  if (found.length === 1 && found[0]) {
    await client.sandboxes.delete(found[0]);
    return { succeeded: found, failed };
  }
  const result = await client.sandboxes.deleteMany({ ids: found });
  return { succeeded: result.succeeded, failed: [...failed, ...result.failed] };
}

async function confirmAll(context: CliContext, client: Sandlot): Promise<boolean> {
  if (!context.stdin.isTTY) return true;
  let count = 0;
  for await (const _ of client.sandboxes.list({ activeOnly: true })) count++;
  if (count === 0) return true;
  return confirm(context, `Remove ${count} sandbox${count === 1 ? '' : 'es'}?`);
}

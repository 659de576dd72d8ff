/** `sandlot rm`: by ids, by label, or everything of one's own. */
import type { DeleteResult, SandboxInfo, Sandlot } from '@sandlot/sdk';
import { errorTable } from '@sandlot/sdk/error-table';
import { CliError, exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';
import { exitCodeOf } from '../exit-code.js';
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
  const { succeeded, failed } = await remove(client, ids, options);
  if (options.output === 'json') {
    context.out.json({ succeeded, failed: failed.map(({ id, error }) => ({ id, error })) });
  } else {
    for (const id of succeeded) context.out.line(id);
    for (const { id, error } of failed) context.out.note(`sandlot rm: ${id}: ${error}`);
    if (succeeded.length === 0 && failed.length === 0) context.out.note('nothing to remove');
  }
  return failed[0]?.exitCode ?? 0;
}

/** What became of each; `exitCode` is what one failure alone would give. */
interface Removed {
  succeeded: string[];
  failed: { id: string; error: string; exitCode: number }[];
}

async function remove(client: Sandlot, ids: string[], options: RemoveOptions): Promise<Removed> {
  if (options.label) return withCodes(await client.sandboxes.deleteMany({ labels: options.label }));
  if (options.all) return withCodes(await client.sandboxes.deleteMany({ all: true }));
  const found: SandboxInfo[] = [];
  const failed: Removed['failed'] = [];
  /** Where each was named, by its word and by its id: failures are told in that order. */
  const places = new Map<string, number>();
  // One that is wrong does not keep the others.
  for (const [place, id] of ids.entries()) {
    places.set(id, place);
    try {
      const info = await client.sandboxes.find(id);
      found.push(info);
      places.set(info.id, place);
    } catch (error) {
      if (!isMissing(error) && (error as { code?: string }).code !== 'AMBIGUOUS_ID') throw error;
      failed.push({ id, error: messageOf(error), exitCode: await exitCodeOf(error) });
    }
  }
  const removed = await removeFound(client, found);
  failed.push(...removed.failed);
  failed.sort((left, right) => (places.get(left.id) ?? 0) - (places.get(right.id) ?? 0));
  return { succeeded: removed.succeeded, failed };
}

async function removeFound(client: Sandlot, found: readonly SandboxInfo[]): Promise<Removed> {
  const [first] = found;
  if (first === undefined) return { succeeded: [], failed: [] };
  if (found.length === 1) {
    try {
      await client.sandboxes.delete(first.id);
      return { succeeded: [first.id], failed: [] };
    } catch (error) {
      if (!isMissing(error)) throw error;
      const exitCode = await exitCodeOf(error);
      return { succeeded: [], failed: [{ id: first.id, error: whyGone(first), exitCode }] };
    }
  }
  const result = withCodes(await client.sandboxes.deleteMany({ ids: found.map(({ id }) => id) }));
  for (const one of result.failed) {
    const info = found.find(({ id }) => id === one.id);
    if (info) one.error = whyGone(info);
  }
  return result;
}

/** The bulk delete gives texts alone, and only for what is not there. */
function withCodes({ succeeded, failed }: DeleteResult): Removed {
  return {
    succeeded,
    failed: failed.map((one) => ({ ...one, exitCode: errorTable.SANDBOX_NOT_FOUND.exitCode })),
  };
}

function isMissing(error: unknown): boolean {
  return (error as { status?: number }).status === 404;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** It was found a moment ago, and is kept for seven days to be looked at: only its removal is over. */
function whyGone({ id, terminatedAt }: SandboxInfo): string {
  return `it was removed already${terminatedAt ? ` and ended ${terminatedAt}` : ''}; \`sandlot get ${id}\` still shows it`;
}

async function confirmAll(context: CliContext, client: Sandlot): Promise<boolean> {
  if (!context.stdin.isTTY) return true;
  let count = 0;
  for await (const _ of client.sandboxes.list({ activeOnly: true })) count++;
  if (count === 0) return true;
  return confirm(context, `Remove ${count} sandbox${count === 1 ? '' : 'es'}?`);
}

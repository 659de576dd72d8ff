/** The view that options of `create` and `run` describe, and how `get` shows one. */
import { readFile } from 'node:fs/promises';
import type { SandboxInfo, View } from '@sandlot/sdk';
import { CliError, exitCodes } from '../cli-error.js';

/** Options that describe a view. */
export interface ViewOptions {
  /** JSON, or a file of it; false for `--no-view`. */
  view?: string | false;
  hide?: string[];
  readOnly?: string[];
  privateTmp?: boolean;
  viewStrength?: 'sealed' | 'mask';
}

type WireView = NonNullable<SandboxInfo['view']>;

/** The view; undefined when no option speaks of one. */
export async function viewOf(options: ViewOptions): Promise<View | undefined> {
  const { view, hide, readOnly, privateTmp, viewStrength } = options;
  const flags: View = {
    ...(viewStrength === undefined ? {} : { strength: viewStrength }),
    ...(hide === undefined ? {} : { hide }),
    ...(readOnly === undefined ? {} : { readonly: readOnly }),
    ...(privateTmp === undefined ? {} : { privateTmp }),
  };
  const hasFlags = Object.keys(flags).length > 0;
  if (view === undefined) return hasFlags ? flags : undefined;
  const name = view === false ? '--no-view' : '--view';
  if (hasFlags)
    throw new CliError(`${name} and the other options of a view exclude each other`, {
      hint: 'Give all of the view as JSON by --view, or --hide, --read-only, --private-tmp, --view-strength.',
      exitCode: exitCodes.usage,
    });
  return view === false ? { strength: 'none' } : parseView(await textOf(view));
}

/** A view in one line, for a person. */
export function viewText(view: WireView | null | undefined): string | undefined {
  if (!view) return undefined;
  return [
    view.strength ?? 'sealed',
    view.hide?.length ? `hides ${view.hide.join(', ')}` : '',
    view.readonly?.length ? `read-only ${view.readonly.join(', ')}` : '',
    view.private_tmp ? 'a /tmp of its own' : '',
    view.network ? `network ${view.network}` : '',
  ]
    .filter((part) => part !== '')
    .join('; ');
}

async function textOf(view: string): Promise<string> {
  if (view.trimStart().startsWith('{')) return view;
  try {
    return await readFile(view, 'utf8');
  } catch (cause) {
    throw new CliError(`--view: ${view} cannot be read`, {
      cause,
      hint: 'Give a file of JSON, or JSON itself, such as {"hide": ["/srv"]}.',
      exitCode: exitCodes.usage,
    });
  }
}

const fields = ['strength', 'hide', 'readonly', 'private_tmp', 'network'];

/** In the form of the API. What it means is for the server to judge, but a field that we do not know would be lost on the way. */
function parseView(text: string): View {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new CliError('--view is no JSON', { cause, exitCode: exitCodes.usage });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrong('must be an object');
  const unknown = Object.keys(value).find((name) => !fields.includes(name));
  if (unknown !== undefined)
    throw wrong(`has no ${JSON.stringify(unknown)}: it may hold ${fields.join(', ')}`);
  const { strength, hide, readonly, private_tmp: privateTmp, network } = value as WireView;
  for (const [name, list] of Object.entries({ hide, readonly }))
    if (list !== undefined && !(Array.isArray(list) && list.every((path) => typeof path === 'string')))
      throw wrong(`${name} must be a list of paths`);
  return { strength, hide, readonly, privateTmp, network };
}

function wrong(what: string): CliError {
  return new CliError(`--view: ${what}`, { exitCode: exitCodes.usage });
}

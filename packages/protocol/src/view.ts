/**
 * Views as clients write them: what a command sees of its machine. The form is the same in a create, in an exec of
 * the gateway and in the sandbox object; the guest has its own (`guest-api.ts`, GuestView). Used by control plane,
 * gateway and SDK. What a view holds and what it does not: `docs/views.md`.
 */
import { type Static, Type } from '@sinclair/typebox';
import type { GuestView } from './guest-api.js';
import { OneOf, type SchemaIssue } from './schema.js';

/** Most entries of each list of a view. */
export const maxViewPaths = 64;
/** Longest path in a view, characters. */
export const maxViewPathLength = 1024;

/** One path of a view. */
const ViewPath = Type.String({
  maxLength: maxViewPathLength,
  // "/" alone is no such path: a view without anything in it is of no use.
  pattern: '^(?:/(?!\\.{1,2}(?:/|$))[^/\\0]+)+$',
  description: 'an absolute path below /, without ".", ".." or empty parts, and without "/" at its end',
});

/** A view, as a client asks for it. An unknown field is refused: a misspelt one would hide nothing. */
export const View = Type.Object(
  {
    strength: Type.Optional(OneOf('sealed', 'mask', 'none')),
    hide: Type.Optional(Type.Array(ViewPath, { maxItems: maxViewPaths })),
    readonly: Type.Optional(Type.Array(ViewPath, { maxItems: maxViewPaths })),
    private_tmp: Type.Optional(Type.Boolean()),
    network: Type.Optional(OneOf('own', 'none', 'machine')),
  },
  {
    additionalProperties: false,
    description:
      'Addition: what a command sees of its machine. strength: sealed (the default; root inside has no way back), mask (root can undo it), none (outside of any view).',
  },
);
/** A view, as a client asks for it. */
export type View = Static<typeof View>;

/**
 * What the schema of a view cannot say.
 * @param param where it stands in the request, such as `view`
 */
export function viewIssues(view: View, param: string): SchemaIssue[] {
  const issues: SchemaIssue[] = [];
  if (view.strength === 'none' && Object.keys(view).some((name) => name !== 'strength'))
    issues.push({ param, details: 'With strength "none", outside of any view, it must hold nothing else.' });
  const networks = view.strength === 'mask' ? ['machine'] : ['own', 'none'];
  if (view.strength !== 'none' && view.network !== undefined && !networks.includes(view.network))
    issues.push({
      param: `${param}.network`,
      details: `With strength "${view.strength ?? 'sealed'}" it must be ${networks.join(' or ')}.`,
    });
  for (const list of ['hide', 'readonly'] as const) {
    const paths = view[list] ?? [];
    const twice = paths.find((path, at) => paths.indexOf(path) !== at);
    if (twice !== undefined) issues.push({ param: `${param}.${list}`, details: `Names ${twice} twice.` });
  }
  return issues;
}

/** The same in the guest's form; undefined for `none`, which is outside of any view. */
export function guestViewOf(view: View): GuestView | undefined {
  const { strength = 'sealed', hide, readonly, private_tmp: privateTmp, network } = view;
  if (strength === 'none') return undefined;
  return {
    strength,
    ...(hide && hide.length > 0 ? { hide } : {}),
    ...(readonly && readonly.length > 0 ? { readonly } : {}),
    ...(privateTmp ? { privateTmp } : {}),
    ...(network ? { network } : {}),
  };
}

/** Whether two views show the same; the order of paths does not matter. */
export function isSameView(left: GuestView, right: GuestView): boolean {
  return canonical(left) === canonical(right);
}

function canonical(view: GuestView): string {
  const { strength, hide = [], readonly = [], privateTmp = false } = view;
  const network = view.network ?? (strength === 'sealed' ? 'own' : 'machine');
  return JSON.stringify([strength, [...hide].sort(), [...readonly].sort(), privateTmp, network]);
}

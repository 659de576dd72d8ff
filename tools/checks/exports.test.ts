/** Every export has a docstring directly above it. */
import ts from 'typescript';
import { expect, it } from 'vitest';
import { listPackageSources, readText } from './source-files.js';

/** Names of exported declarations of a file without a docstring. */
function findUndocumented(path: string, text: string): string[] {
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  return file.statements
    .filter(
      (node) =>
        ts.canHaveModifiers(node) &&
        ts.getModifiers(node)?.some((modifier) => modifier.kind === ts.SyntaxKind.ExportKeyword),
    )
    .filter((node) => !isOverload(node) && !hasDocstring(node, text))
    .map((node) => {
      const { line } = file.getLineAndCharacterOfPosition(node.getStart());
      return `${path}:${line + 1} ${text.slice(node.getStart(), node.getEnd()).split('\n')[0]!.slice(0, 80)}`;
    });
}

/** A docstring is the last comment before the declaration, with nothing but one line break between. */
function hasDocstring(node: ts.Node, text: string): boolean {
  const last = ts.getLeadingCommentRanges(text, node.getFullStart())?.at(-1);
  if (!last || !text.startsWith('/**', last.pos)) return false;
  return /^[ \t]*\r?\n?[ \t]*$/.test(text.slice(last.end, node.getStart()));
}

/** A signature without a body: the docstring stands above the first one. */
function isOverload(node: ts.Node): boolean {
  if (!ts.isFunctionDeclaration(node)) return false;
  const siblings = (node.parent as ts.SourceFile).statements;
  const before = siblings[siblings.indexOf(node) - 1];
  return before !== undefined && ts.isFunctionDeclaration(before) && before.body === undefined;
}

it('finds an export without a docstring', () => {
  const text =
    '/** Top. */\n\nexport const a = 1;\n/** Good. */\nexport const b = 1;\n// No.\nexport function c() {}\n';
  expect(findUndocumented('x.ts', text)).toEqual([
    'x.ts:3 export const a = 1;',
    'x.ts:7 export function c() {}',
  ]);
});

it('every export of every package is documented', () => {
  const sources = listPackageSources().filter((path) => !path.endsWith('.test.ts'));
  expect(sources.flatMap((path) => findUndocumented(path, readText(path)))).toEqual([]);
});

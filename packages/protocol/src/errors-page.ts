/** Makes the page `docs/errors.md` from the tables of errors and endings; checked for drift by a test. */
import { endings } from './endings.js';
import { errorTable } from './errors.js';

const actors = {
  caller: 'the caller',
  admin: 'an admin',
  wait: 'nobody: wait and retry',
  sandlot: 'Sandlot’s makers',
};

/** The page as Markdown. */
export function errorsPage(): string {
  const rows = Object.entries(errorTable).map(
    ([code, row]) =>
      `| \`${code}\` | ${row.status} | ${actors[row.actor]} | ${row.retryable ? 'yes' : 'no'} | ${row.exitCode} | ${row.meaning} | ${row.remedy} |`,
  );
  const ends = Object.entries(endings).map(
    ([reason, row]) =>
      `| \`${reason}\` | ${row.status} | ${row.errorType === null ? '' : `\`${row.errorType}\``} | ${row.message} |`,
  );
  return [
    '# Errors',
    '',
    'Made by `packages/protocol/src/write-openapi.ts` from `errors.ts` and `endings.ts`; do not edit.',
    '',
    'Every error answer of the API (`/api/v1`) is `{"detail", "code", "errors": [{"param", "details"}], "request_id"}`.',
    '`detail` says what failed, why, and what to do; the request id finds it in the logs of control plane and node agent.',
    '',
    'The gateway (`/gw`) answers in the forms that Prime’s clients read: `{"error", "detail"}` from its HTTP calls, where',
    '`error` is a code such as `sandbox_not_running`, and `{"code", "message"}` of the Connect protocol from its exec service.',
    'Their request id is in the header `x-request-id`, as that of every answer.',
    '',
    '| Code | Status | Who acts next | Retry | CLI exit | Meaning | What to do |',
    '|---|---|---|---|---|---|---|',
    ...rows,
    '',
    'The CLI exits with the code of the row. Answers with codes of their own take the code of their status: a path in the',
    'sandbox that is not there (`ENOENT`) gives 66, one of the wrong kind (`EISDIR`, `ENOTDIR`) or form 64, one that may not',
    'be written 77, a full disk 75, a sandbox that does not run 73. A pull or an import that fails on its way gives 64 for',
    'a wrong name, 65 for an image that is damaged or of a kind that does not run here, 66 for one that is not there, 69 for',
    'a registry that does not answer, 75 for one that limits us or a full disk, 77 for a login that is missing. Of several',
    'failures (`rm A B`) it is the code of the first. `run` gives 125 for all of them; what no server refused (a local file,',
    'no connection, an image that a `create` could not get) gives 1.',
    '',
    '## How a sandbox can end',
    '',
    '`terminationReason` of a sandbox; `errorType` and `status` are what Prime’s clients look at.',
    '',
    '| Reason | Status | errorType | Meaning |',
    '|---|---|---|---|',
    ...ends,
    '',
  ].join('\n');
}

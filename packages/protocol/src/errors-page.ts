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

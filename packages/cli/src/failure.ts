/** Says what failed, why, and what to do. Pure; used by `cli.ts` for every error of every command. */
import { CliError } from './cli-error.js';
import { flagOf, withFlags } from './flag-names.js';

/** A failure for the terminal and for programs. */
export interface FailureReport {
  text: string;
  json: Record<string, unknown>;
  exitCode: number;
}

/** The parts of the SDK's errors that are read here; by shape, so that the SDK need not be loaded. */
interface KnownError {
  name: string;
  message: string;
  code?: string;
  status?: number;
  hint?: string;
  requestId?: string;
  errorType?: string | undefined;
  problems?: { field: string; problem: string }[];
}

/** Describes any error. `args` names the command that was run. */
export function describeFailure(error: unknown, args: readonly string[], failedCode: number): FailureReport {
  const known: KnownError = error instanceof Error ? error : { name: 'Error', message: String(error) };
  const command = commandOf(args);
  const hint = known.hint ?? hintFor(known);
  const problems = known.problems ?? [];
  const isOfNew = /^(sandbox )?(create|run)$/.test(command);
  const fields = problems.map(({ field }) => field);
  const message = isOfNew ? withFlags(known.message, fields) : known.message;
  const lines = [`sandlot ${command}: ${message.trim()}`];
  for (const { field, problem } of problems) {
    if (field !== '' && !known.message.includes(field))
      lines.push(`  ${isOfNew ? flagOf(field) : field}: ${isOfNew ? withFlags(problem, []) : problem}`);
  }
  const cause = causeText(known);
  if (cause) lines.push(`  because: ${cause}`);
  if (hint) lines.push(`  ${hint}`);
  if (known.requestId) lines.push(`  (request ${known.requestId})`);
  return {
    text: `${lines.join('\n')}\n`,
    json: {
      command,
      message,
      ...(known.code === undefined ? {} : { code: known.code }),
      ...(known.status === undefined ? {} : { status: known.status }),
      ...(hint === undefined ? {} : { hint }),
      ...(known.requestId === undefined ? {} : { requestId: known.requestId }),
      ...(known.problems?.length ? { problems: known.problems } : {}),
    },
    exitCode: error instanceof CliError ? error.exitCode : known.name === 'AbortError' ? 130 : failedCode,
  };
}

function commandOf(args: readonly string[]): string {
  const words = args.slice(0, 2).filter((arg) => /^[a-z][a-z-]*$/.test(arg));
  const groups = ['image', 'user', 'team', 'key', 'sandbox', 'checkpoint', 'config'];
  return (groups.includes(words[0] ?? '') ? words.join(' ') : words[0]) ?? '';
}

function causeText(error: KnownError): string | undefined {
  // The SDK's messages hold their reason already; only our own wrap a foreign error.
  if (error.name !== 'CliError') return undefined;
  const { cause } = error as { cause?: unknown };
  return cause instanceof Error ? cause.message : undefined;
}

const hints: Record<string, string> = {
  AuthenticationError:
    'Set SANDLOT_API_KEY, or `sandlot config set api_key KEY`; on the server itself `env -u SANDLOT_API_KEY sandlot key create` makes one without any.',
  PermissionError:
    'An admin key is needed, or run it on the server as its owner without SANDLOT_API_KEY (by the admin socket).',
  FileNotFoundError: 'Check the path in the sandbox, for instance with `sandlot run ID -- ls -la FOLDER`.',
  DeadlineError: 'Try again; `sandlot status` says whether the server answers.',
  RateLimitError: 'Wait a little and try again.',
};

function hintFor(error: KnownError): string | undefined {
  if (error.name === 'ConnectionError') {
    // The message says what to do.
    if (error.message.includes('certificate of the server')) return undefined;
    return error.code === 'ECONNREFUSED' || error.code === 'ENOENT'
      ? 'Start the server with `sandlot up --detach`, or name another with SANDLOT_URL.'
      : 'Check SANDLOT_URL (`sandlot config`) and the network, then try again.';
  }
  // The server's own words mostly say what to do; what they say is not said again.
  const { message } = error;
  const isAdvised = /[`"](sandlot |image )/.test(message);
  if (error.name === 'AuthenticationError' && isAdvised)
    return 'Set it as SANDLOT_API_KEY, or with `sandlot config set api_key KEY`; on the server itself `env -u SANDLOT_API_KEY sandlot key create` needs none.';
  if (error.name === 'PermissionError' && message.includes('admin socket'))
    return 'The admin socket is asked where SANDLOT_API_KEY is not set.';
  if (error.name === 'NotFoundError')
    return isAdvised ? undefined : '`sandlot ls --all` and `sandlot image ls` list what there is.';
  // One that failed has a reason with advice of its own.
  if (error.name === 'SandboxNotRunningError' && !error.errorType)
    return '`sandlot get ID` shows its state; `sandlot create` starts a new one.';
  return hints[error.name];
}

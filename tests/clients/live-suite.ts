/**
 * The live tests that `prime-sandboxes` carries in its own source distribution, unpatched, against a test
 * server with real machines. Their files are fetched by exact version when they run; none is kept here.
 * Called by `sdk-live.test.ts` (all generations) and `tests/e2e/prime-live.test.ts` (the newest known one).
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inCheckout } from '../driver/checkout.js';
import type { TestServer } from '../driver/test-server.js';
import type { FeatureResult } from './feature-results.js';
import { type ReportedCase, readJunit } from './junit-report.js';
import { notYet } from './not-yet.js';
import { ClientShell } from './published-program.js';
import { sourceOf, venv } from './venv.js';

/** Packages that run the tests of a client. */
const testPackages = ['pytest', 'pytest-asyncio', 'pytest-xdist'];

/** The one test that sleeps 100 seconds is first, so that all others run beside it. */
const files: Record<string, string> = {
  'test_cmd_timeout.py': 'time limits of commands',
  'test_sandbox_operations.py': 'create, list, get, delete',
  'test_command_execution.py': 'commands',
  'test_file_operations.py': 'files',
  'test_live_process_idempotency_live.py': 'live processes, attached again',
  'test_images_integration_live.py': 'image builds and transfers',
};

/** Tests of the image file that are about something else. */
const features: Record<string, string> = {
  test_structured_start_command_live: 'start command',
  test_background_job_live: 'background jobs',
  test_egress_policy_live: 'egress policy',
};

/**
 * Upstream's own, and contradicted here on purpose: from 0.3 on it asserts that the logs of a machine can
 * not be had. Here they can.
 */
const contradicted = 'tests/test_sandbox_operations.py::test_get_logs';

/** Some of upstream's tests allow a second for what a busy host without KVM may need longer for. More than so many failures are a fault. */
const maxSecondTries = 3;

/** Longest that one suite may take, on a busy host without KVM. */
const suiteMs = 1_500_000;

/** The environment of a version, made if it is not there. Takes the network; not part of a suite's time. */
export async function liveSuiteOf(version: string): Promise<{ bin: string; source: string }> {
  const bin = await venv(`prime-sandboxes-${version}`, [`prime-sandboxes==${version}`, ...testPackages]);
  return { bin, source: await sourceOf('prime-sandboxes', version, bin) };
}

/**
 * Runs the suite of a version, two tests at a time, and writes its lines of the table. A few that fail are run once more,
 * alone; which, is told, and stands in the table.
 * @param least how many tests must have run: fewer is a failure
 * @throws with everything that did not go as it must
 */
export async function runLiveSuite(
  server: TestServer,
  key: string,
  version: string,
  least: number,
): Promise<void> {
  const { bin, source } = await liveSuiteOf(version);
  const shell = new ClientShell(server, bin, key, `home-${version}`);
  const present = Object.keys(files).filter((file) => existsSync(join(source, 'tests', file)));
  const began = Date.now();
  const run = async (name: string, tests: string[]) => {
    const report = join(shell.home, `${name}.xml`);
    const answer = await shell.run(
      'python',
      [
        ...['-m', 'pytest', '-q', '-n', '2', '--maxschedchunk', '1', '-p', 'no:cacheprovider'],
        ...['--junitxml', report, ...(version.startsWith('0.2.') ? [] : ['--deselect', contradicted])],
        ...tests.map((test) => `tests/${test}`),
      ],
      {
        cwd: source,
        env: { PRIME_LIVE_VM_SMOKE: '1', PYTHONDONTWRITEBYTECODE: '1' },
        timeoutMs: suiteMs,
      },
    );
    if (!existsSync(report))
      throw new Error(
        `pytest ended with ${answer.code} and wrote no report:\n${answer.stdout}${answer.stderr}`,
      );
    return readJunit(readFileSync(report, 'utf8'));
  };
  const client = `prime-sandboxes ${version}`;
  const first = await run('first', present);
  const failed = unexpectedFailures(client, first);
  const again =
    failed.length > 0 && failed.length <= maxSecondTries
      ? await run(
          'again',
          failed.map(({ name }) => name),
        )
      : [];
  const cases = first.map((one) => again.find(({ name }) => name === one.name) ?? one);
  for (const { name, message } of failed)
    process.stdout.write(`${client}: ${name} failed at the first try: ${message}\n`);
  writeResults(client, cases, new Set(again.map(({ name }) => name)));
  const passed = cases.filter(({ result }) => result === 'passed').length;
  process.stdout.write(
    `${client}: ${passed} of ${cases.length} live tests passed, ${Math.round((Date.now() - began) / 1000)} s\n`,
  );
  const wrong = complaintsOf(client, cases);
  if (cases.length < least) wrong.push(`only ${cases.length} tests ran, of ${least}`);
  if (wrong.length > 0) throw new Error(`${wrong.join('\n\n')}\n${server.logs()}`);
}

function unexpectedFailures(client: string, cases: readonly ReportedCase[]): ReportedCase[] {
  const expected = new Set(notYet.filter((one) => one.client === client).map(({ name }) => name));
  return cases.filter(({ name, result }) => result === 'failed' && !expected.has(name));
}

/** What did not go as it must: a failure that is not expected, or a success that is. */
export function complaintsOf(client: string, cases: readonly ReportedCase[]): string[] {
  const expected = new Map(notYet.filter((one) => one.client === client).map((one) => [one.name, one.why]));
  const ran = new Set(cases.map(({ name }) => name));
  const wrong = cases.flatMap(({ name, result, message }) => {
    if (result === 'passed') return expected.has(name) ? [`${name} passes: take it out of not-yet.ts`] : [];
    return expected.has(name) ? [] : [`${name} ${result}: ${message}`];
  });
  const gone = [...expected.keys()].filter((name) => !ran.has(name));
  return [...wrong, ...gone.map((name) => `${name} stands in not-yet.ts and has not run`)];
}

function writeResults(
  client: string,
  cases: readonly ReportedCase[],
  secondTries: ReadonlySet<string>,
): void {
  const expected = new Set(notYet.filter((one) => one.client === client).map(({ name }) => name));
  const lines = cases.map(({ name, result }): FeatureResult => {
    const [file = '', test = ''] = name.split('::');
    return {
      client,
      feature: features[test.replace(/\[.*/, '')] ?? files[file] ?? file,
      result:
        result === 'passed'
          ? secondTries.has(name)
            ? 'passed at the second try'
            : 'passed'
          : expected.has(name)
            ? 'not yet'
            : 'failed',
    };
  });
  const folder = inCheckout('.cache/client-results');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, `${client.replace(' ', '-')}.json`), `${JSON.stringify(lines, undefined, 2)}\n`);
}

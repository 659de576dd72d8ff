/**
 * The commands of Prime's command line that this server does not do yet: each fails with the server's 501,
 * whose text names the feature. Called by `prime-cli.test.ts`.
 */
import { expect } from 'vitest';
import type { CliAnswer } from '../driver/test-server.js';
import type { FeatureTests } from './feature-results.js';
import { notYet } from './not-yet.js';

/** What the commands are tried on. */
export interface NotYetSubject {
  /** One that runs, asked when a test runs. The older generation refuses ssh and ports of machines by itself: a "container" there. */
  sandbox: () => string;
  image: string;
  call: (args: string[]) => Promise<CliAnswer>;
}

/** Words of the command, `ID` standing for a sandbox, and what the answer must name. */
const commands: Record<string, { args: string[]; names: string }> = {
  'sandbox ssh': { args: ['sandbox', 'ssh', 'ID'], names: 'ssh' },
  'sandbox expose': { args: ['sandbox', 'expose', 'ID', '8000'], names: 'port exposure' },
  'sandbox unexpose': { args: ['sandbox', 'unexpose', 'ID', 'exposure', '-y'], names: 'port exposure' },
  'sandbox list-ports': { args: ['sandbox', 'list-ports', 'ID'], names: 'port exposure' },
  'sandbox network create': { args: ['sandbox', 'network', 'create', 'lan'], names: 'LAN networks' },
  'sandbox network list': { args: ['sandbox', 'network', 'list'], names: 'LAN networks' },
  'sandbox network get': { args: ['sandbox', 'network', 'get', 'lan'], names: 'LAN networks' },
  'sandbox network delete': { args: ['sandbox', 'network', 'delete', 'lan', '-y'], names: 'LAN networks' },
  'sandbox network add': { args: ['sandbox', 'network', 'add', 'lan', 'ID'], names: 'LAN networks' },
  'sandbox network remove': { args: ['sandbox', 'network', 'remove', 'lan', 'ID'], names: 'LAN networks' },
  'sandbox network rules': {
    args: ['sandbox', 'network', 'rules', 'lan', '--rule', '*->*'],
    names: 'LAN networks',
  },
  'sandbox volumes create': { args: ['sandbox', 'volumes', 'create', 'data'], names: 'volumes' },
  'sandbox volumes list': { args: ['sandbox', 'volumes', 'list'], names: 'volumes' },
  'sandbox volumes get': { args: ['sandbox', 'volumes', 'get', 'data'], names: 'volumes' },
  'sandbox volumes delete': { args: ['sandbox', 'volumes', 'delete', 'data', '-y'], names: 'volumes' },
  'sandbox volumes publish': {
    args: ['sandbox', 'volumes', 'publish', 'data', '--sandbox', 'ID'],
    names: 'volumes',
  },
  'sandbox create --volume': {
    args: ['sandbox', 'create', 'IMAGE', '-y', '--volume', 'data:/data'],
    names: 'volumes',
  },
};

/** Declares a test for each entry of `notYet` of this client. */
export function declareNotYet(
  tests: FeatureTests,
  client: string,
  timeoutMs: number,
  subject: NotYetSubject,
): void {
  for (const { name } of notYet.filter((one) => one.client === client)) {
    tests.isNotYet(
      client,
      name,
      async () => {
        const command = commands[name];
        if (!command) throw new Error(`there is no command for "${name}" of not-yet.ts`);
        const stands: Record<string, string> = { ID: subject.sandbox(), IMAGE: subject.image };
        const { code, stdout, stderr } = await subject.call(command.args.map((word) => stands[word] ?? word));
        expect(code).toBe(1);
        expect(stdout + stderr).toContain('501');
        expect(stdout + stderr).toContain(command.names);
      },
      timeoutMs,
    );
  }
}

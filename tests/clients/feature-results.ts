/**
 * What the tests of this folder have found, one line for a client and feature, in `.cache/client-results`:
 * the table of `docs/from-prime.md` is made of it.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, it } from 'vitest';
import { notYet } from './not-yet.js';

/** One line of the table. */
export interface FeatureResult {
  client: string;
  feature: string;
  result: 'passed' | 'passed at the second try' | 'failed' | 'not yet';
}

const folder = path.resolve(import.meta.dirname, '../../.cache/client-results');

/**
 * Declares tests whose outcome becomes a line of the table.
 * @param name of the file that is written when all have run
 */
export class FeatureTests {
  readonly #results: FeatureResult[] = [];

  constructor(name: string) {
    afterAll(() => {
      mkdirSync(folder, { recursive: true });
      writeFileSync(path.join(folder, `${name}.json`), `${JSON.stringify(this.#results, undefined, 2)}\n`);
    });
  }

  /** A feature that works. */
  works(client: string, feature: string, body: () => Promise<void>, timeoutMs?: number): void {
    it(`${client}: ${feature}`, () => this.#record(client, feature, 'passed', body), timeoutMs);
  }

  /** A feature that stands in `notYet`; `body` asserts that the refusal names it. */
  isNotYet(client: string, feature: string, body: () => Promise<void>, timeoutMs?: number): void {
    it(
      `${client}: ${feature} is not yet`,
      async () => {
        if (!notYet.some((one) => one.client === client && one.name === feature))
          throw new Error(`"${feature}" of ${client} does not stand in not-yet.ts`);
        await this.#record(client, feature, 'not yet', body);
      },
      timeoutMs,
    );
  }

  async #record(
    client: string,
    feature: string,
    good: FeatureResult['result'],
    body: () => Promise<void>,
  ): Promise<void> {
    // First: a body that hangs is a failure too.
    const line: FeatureResult = { client, feature, result: 'failed' };
    this.#results.push(line);
    await body();
    line.result = good;
  }
}

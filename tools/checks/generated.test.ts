/** What is generated and checked in is what the generators make now: OpenAPI, the errors page, protobuf. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, it } from 'vitest';
import { readText, root } from './source-files.js';

/** A built module of the protocol package; `make test` compiles before it runs this. */
async function importProtocol(name: string): Promise<Record<string, (...values: string[]) => string>> {
  return import(pathToFileURL(join(root, 'packages/protocol/dist', `${name}.js`)).href);
}

it('docs/openapi.json is what the schemas say', async () => {
  const { openApiText } = await importProtocol('openapi');
  const version: string = JSON.parse(readText('package.json')).version;
  // `node packages/protocol/dist/write-openapi.js` renews it.
  expect(readText('docs/openapi.json')).toBe(openApiText!(version));
});

it('docs/errors.md is what the error table says', async () => {
  const { errorsPage } = await importProtocol('errors-page');
  expect(readText('docs/errors.md')).toBe(errorsPage!());
});

it('the protobuf code is what protoc makes of the .proto files', (context) => {
  if (!existsSync('/usr/bin/protoc')) {
    context.skip('protoc is not installed: apt-get install protobuf-compiler');
  }
  const out = mkdtempSync(join(tmpdir(), 'sandlot-gen-'));
  try {
    const folder = join(root, 'packages/protocol/proto');
    const sources = readdirSync(folder).filter((name) => name.endsWith('.proto'));
    mkdirSync(join(out, 'gen'));
    execFileSync('protoc', [
      `-I${folder}`,
      `--plugin=protoc-gen-es=${join(root, 'node_modules/.bin/protoc-gen-es')}`,
      `--es_out=${join(out, 'gen')}`,
      '--es_opt=target=ts',
      ...sources,
    ]);
    for (const name of readdirSync(join(out, 'gen'))) {
      expect(readText(`packages/protocol/src/gen/${name}`)).toBe(
        readFileSync(join(out, 'gen', name), 'utf8'),
      );
    }
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
});

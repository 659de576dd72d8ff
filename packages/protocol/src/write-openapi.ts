/**
 * Renews `docs/openapi.json` and `docs/errors.md` from the tables:
 * `node packages/protocol/dist/write-openapi.js` from the root of the checkout.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { errorsPage } from './errors-page.js';
import { openApiText } from './openapi.js';
import { productVersion } from './version.js';

const docs = new URL('../../../docs/', import.meta.url);
writeFileSync(fileURLToPath(new URL('openapi.json', docs)), openApiText(productVersion));
writeFileSync(fileURLToPath(new URL('errors.md', docs)), errorsPage());

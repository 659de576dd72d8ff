/** `sandlot config`: the settings in force and where each comes from. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { properties } from '../output/table.js';

/** The action. */
export async function run(context: CliContext, _args: [], options: OutputOptions): Promise<void> {
  const { url, apiKey, data, file } = context.settings();
  if (options.output === 'json') {
    return context.out.json({ url: url.value, api_key: apiKey?.value ?? null, data: data.value, file });
  }
  context.out.line(
    properties([
      ['url', `${url.value}  (${url.from})`],
      ['api_key', apiKey ? `${shorten(apiKey.value)}  (${apiKey.from})` : 'none'],
      ['data', `${data.value}  (${data.from})`],
      ['file', file],
    ]),
  );
  if (apiKey) context.out.note('`sandlot config --output json` shows the whole key');
}

// Enough to tell keys apart, too little to use one that was seen on a screen.
function shorten(key: string): string {
  return key.length <= 12 ? '…' : `${key.slice(0, 8)}…`;
}

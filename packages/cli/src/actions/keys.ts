/** `sandlot key create|ls|revoke`. */
import type { ActionModule, OutputOptions } from '../grammar/binder.js';
import { table } from '../output/table.js';
import { age } from '../output/units.js';
import { adminClient } from './admin-client.js';

/** `key create`. */
export const create: ActionModule<[], OutputOptions & { user?: string; name?: string }> = {
  async run(context, _args, options) {
    const made = await (await adminClient(context)).accounts.createKey({
      user: options.user,
      name: options.name,
    });
    context.out.note('the key is shown this once; the server keeps only its hash');
    if (options.output === 'json') context.out.json(made);
    else context.out.line(made.key);
  },
};

/** `key ls`. */
export const list: ActionModule<[], OutputOptions> = {
  async run(context, _args, options) {
    const keys = await (await adminClient(context)).accounts.listKeys();
    if (options.output === 'json') return context.out.json(keys);
    const now = Date.now();
    context.out.line(
      table(
        ['ID', 'NAME', 'KEY', 'USER', 'AGE', 'LAST USED', 'REVOKED'],
        keys.map((key) => [
          key.id,
          key.name,
          `${key.prefix}…`,
          key.userName,
          age(key.createdAt, now),
          age(key.lastUsedAt, now),
          key.revokedAt ? 'yes' : '',
        ]),
      ),
    );
  },
};

/** `key revoke ID`. */
export const revoke: ActionModule<[string], object> = {
  async run(context, [id]) {
    await (await adminClient(context)).accounts.revokeKey(id);
    context.out.note(`key ${id} is worthless now`);
  },
};

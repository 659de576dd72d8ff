/** `sandlot user create|ls`. */
import type { ActionModule, OutputOptions } from '../grammar/binder.js';
import { table } from '../output/table.js';
import { age } from '../output/units.js';
import { adminClient } from './admin-client.js';

/** `user create NAME`. */
export const create: ActionModule<[string], OutputOptions & { admin?: boolean }> = {
  async run(context, [name], options) {
    const user = await (await adminClient(context)).accounts.createUser(name, { admin: options.admin });
    if (options.output === 'json') context.out.json(user);
    else context.out.line(user.id);
    context.out.note(`\`sandlot key create --user ${name}\` makes a key for it`);
  },
};

/** `user ls`. */
export const list: ActionModule<[], OutputOptions> = {
  async run(context, _args, options) {
    const users = [];
    for await (const user of (await adminClient(context)).accounts.listUsers()) users.push(user);
    if (options.output === 'json') return context.out.json(users);
    context.out.line(
      table(
        ['ID', 'NAME', 'ADMIN', 'AGE'],
        users.map((user) => [user.id, user.name, user.isAdmin ? 'yes' : '', age(user.createdAt, Date.now())]),
      ),
    );
  },
};

/** `sandlot team create|add|ls`. */
import { CliError, exitCodes } from '../cli-error.js';
import type { ActionModule, OutputOptions } from '../grammar/binder.js';
import { table } from '../output/table.js';
import { age } from '../output/units.js';
import { adminClient } from './admin-client.js';

/** `team create NAME`. */
export const create: ActionModule<[string], OutputOptions> = {
  async run(context, [name], options) {
    const team = await (await adminClient(context)).accounts.createTeam(name);
    if (options.output === 'json') context.out.json(team);
    else context.out.line(team.teamId);
  },
};

/** `team add TEAM USER`. */
export const add: ActionModule<[string, string], { role: string }> = {
  async run(context, [team, user], { role }) {
    if (role !== 'admin' && role !== 'member') {
      throw new CliError(`--role: "${role}" is neither admin nor member`, { exitCode: exitCodes.usage });
    }
    await (await adminClient(context)).accounts.addToTeam(team, user, role);
    context.out.note(`${user} is in ${team} as ${role}`);
  },
};

/** `team ls`. */
export const list: ActionModule<[], OutputOptions> = {
  async run(context, _args, options) {
    const { accounts } = await adminClient(context);
    const teams = [];
    for await (const team of accounts.listTeams()) {
      teams.push({ ...team, members: await accounts.listTeamMembers(team.teamId) });
    }
    if (options.output === 'json') return context.out.json(teams);
    context.out.line(
      table(
        ['ID', 'NAME', 'MEMBERS', 'AGE'],
        teams.map((team) => [
          team.teamId,
          team.name,
          team.members
            .map(({ userName, role }) => (role === 'admin' ? `${userName} (admin)` : userName))
            .join(', '),
          age(team.createdAt, Date.now()),
        ]),
      ),
    );
  },
};

/** `GET /sandbox`: every filter of the wire, newest first, pages that do not shift. */
import { activeStatuses, type ListSandboxesQuery, type SandboxList } from '@sandlot/protocol';
import { wireStatus } from '../domain/wire-status.js';
import { findSandboxes, findSandboxIds, type SandboxFilter } from '../store/sandboxes.js';
import { requireTeam } from './accounts.js';
import type { AppContext, Caller } from './context.js';
import type { PageSnapshots } from './page-snapshots.js';
import { presentSandboxes } from './present-sandbox.js';

/** Most sandboxes that one list can walk through. */
const maxListed = 100_000;

/** One page. */
export async function listSandboxes(
  app: AppContext,
  snapshots: PageSnapshots,
  caller: Caller,
  query: ListSandboxesQuery,
): Promise<SandboxList> {
  const { page = 1, per_page: perPage = 50 } = query;
  const team =
    query.team_id === undefined ? undefined : await requireTeam(app.store.db, caller.actor, query.team_id);
  const filter = toFilter(caller, query, team?.id);
  const key = JSON.stringify([caller.actor.userId, perPage, filter]);
  let ids = page > 1 ? snapshots.find(key) : undefined;
  if (ids === undefined) {
    ids = await findSandboxIds(app.store.db, filter, maxListed);
    if (page === 1 && ids.length > perPage) snapshots.keep(key, ids);
  }
  const wanted = ids.slice((page - 1) * perPage, page * perPage);
  const found = await findSandboxes(app.store.db, wanted);
  const now = app.now();
  const records = wanted
    .flatMap((id) => found.get(id) ?? [])
    // Some may have changed since the first page; a page never shows what its filter excludes.
    .filter((record) => filter.statuses?.includes(wireStatus(record, now)) ?? true);
  const hasNext = page * perPage < ids.length;
  return {
    sandboxes: await presentSandboxes(app, caller, records),
    total: ids.length,
    page,
    perPage,
    hasNext,
    per_page: perPage,
    has_next: hasNext,
  };
}

function toFilter({ actor }: Caller, query: ListSandboxesQuery, teamId: string | undefined): SandboxFilter {
  const statuses = query.status !== undefined ? [query.status] : query.is_active ? activeStatuses : undefined;
  return {
    ...(actor.isAdmin
      ? {}
      : { visibleTo: { userId: actor.userId, teamIds: [...actor.teams.keys()].sort() } }),
    ...(teamId === undefined ? {} : { teamId }),
    ...(query.user_id === undefined ? {} : { ownerId: query.user_id }),
    ...(statuses === undefined ? {} : { statuses }),
    ...(query.labels === undefined ? {} : { labels: query.labels }),
    ...(query.id_prefix === undefined ? {} : { idPrefix: query.id_prefix }),
  };
}

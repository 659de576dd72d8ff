/** What nodes were last seen to offer, so that it is known before they answer again. */
import type { NodeInfo } from '@sandlot/protocol';
import type { Db } from './database.js';

/** Notes what a node says of itself. */
export async function saveNode(db: Db, info: NodeInfo, now: number): Promise<void> {
  const row = { id: info.nodeId, info: JSON.stringify(info), seen_at: now };
  await db
    .insertInto('nodes')
    .values(row)
    .onConflict((conflict) => conflict.column('id').doUpdateSet({ info: row.info, seen_at: now }))
    .execute();
}

/** All nodes as last seen. */
export async function findNodes(db: Db): Promise<NodeInfo[]> {
  const rows = await db.selectFrom('nodes').select('info').orderBy('id').execute();
  return rows.map((row) => JSON.parse(row.info) as NodeInfo);
}

/** Room booked on nodes: made in the transaction that places a sandbox, freed in the one that records its end. */
import type { Shape } from '../domain/record.js';
import type { Db } from './database.js';

/** Books room. */
export async function insertReservation(
  db: Db,
  sandboxId: string,
  nodeId: string,
  shape: Shape,
): Promise<void> {
  await db
    .insertInto('reservations')
    .values({
      sandbox_id: sandboxId,
      node_id: nodeId,
      vcpus: shape.vcpus,
      memory_mib: shape.memoryMiB,
      disk_gib: shape.diskGiB,
    })
    .execute();
}

/** Books another shape in place of what is booked. */
export async function updateReservation(db: Db, sandboxId: string, shape: Shape): Promise<void> {
  await db
    .updateTable('reservations')
    .set({ vcpus: shape.vcpus, memory_mib: shape.memoryMiB, disk_gib: shape.diskGiB })
    .where('sandbox_id', '=', sandboxId)
    .execute();
}

/** Frees room; nothing happens when none was booked. */
export async function deleteReservation(db: Db, sandboxId: string): Promise<void> {
  await db.deleteFrom('reservations').where('sandbox_id', '=', sandboxId).execute();
}

/** Sums of what is booked, by node. */
export async function sumReservations(
  db: Db,
): Promise<Map<string, { vcpus: number; memoryMiB: number; diskGiB: number }>> {
  const rows = await db
    .selectFrom('reservations')
    .select((eb) => [
      'node_id',
      eb.fn.sum<number>('vcpus').as('vcpus'),
      eb.fn.sum<number>('memory_mib').as('memory'),
      eb.fn.sum<number>('disk_gib').as('disk'),
    ])
    .groupBy('node_id')
    .execute();
  return new Map(
    rows.map((row) => [
      row.node_id,
      { vcpus: Number(row.vcpus), memoryMiB: Number(row.memory), diskGiB: Number(row.disk) },
    ]),
  );
}

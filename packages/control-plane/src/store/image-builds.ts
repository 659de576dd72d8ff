/** Builds of images that sandboxes wait for: behind `pendingImageBuildId` and `GET /images/build/{id}`. */
import type { ImageStatus } from '@sandlot/protocol';
import type { Db } from './database.js';

/** A build. */
export interface ImageBuildRecord {
  id: string;
  image: string;
  status: ImageStatus;
  error: string | null;
  createdAt: number;
  completedAt: number | null;
}

/** Notes that a build goes on; one that is known stays as it is. */
export async function noteBuild(db: Db, id: string, image: string, now: number): Promise<void> {
  await db
    .insertInto('image_builds')
    .values({ id, image, status: 'BUILDING', error: null, created_at: now, completed_at: null })
    .onConflict((conflict) => conflict.column('id').doNothing())
    .execute();
}

/** How a build ended. CANCELLED is no last word: another sandbox may wait for the same build. */
export interface BuildOutcome {
  status: Extract<ImageStatus, 'COMPLETED' | 'FAILED' | 'CANCELLED'>;
  error: string | null;
}

/** Notes how a build ended; the first word counts. */
export async function finishBuild(db: Db, id: string, outcome: BuildOutcome, now: number): Promise<void> {
  const completed_at = outcome.status === 'CANCELLED' ? null : now;
  await db
    .updateTable('image_builds')
    .set({ ...outcome, completed_at })
    .where('id', '=', id)
    .where('completed_at', 'is', null)
    .execute();
}

/** One build. */
export async function findBuild(db: Db, id: string): Promise<ImageBuildRecord | undefined> {
  const row = await db.selectFrom('image_builds').selectAll().where('id', '=', id).executeTakeFirst();
  return (
    row && {
      id: row.id,
      image: row.image,
      status: row.status as ImageStatus,
      error: row.error,
      createdAt: row.created_at,
      completedAt: row.completed_at,
    }
  );
}

/** Removes builds that began before a moment. */
export async function purgeBuilds(db: Db, before: number): Promise<void> {
  await db.deleteFrom('image_builds').where('created_at', '<', before).execute();
}

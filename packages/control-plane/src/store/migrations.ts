/** The schema as steps, in order; a released step is never changed. Run by `database.ts` when the store opens. */
import type { Kysely, Migration } from 'kysely';

/** Every step, by name; names sort in the order of application. */
export const migrations: Record<string, Migration> = {
  '0001-begin': { up: begin },
  '0002-checkpoints': { up: createCheckpoints },
};

async function begin(db: Kysely<unknown>): Promise<void> {
  await createSandboxes(db);
  await createAccounts(db);
}

async function createSandboxes(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('sandboxes')
    .addColumn('seq', 'integer', (column) => column.primaryKey().autoIncrement())
    .addColumn('id', 'text', (column) => column.notNull().unique())
    .addColumn('owner_id', 'text', (column) => column.notNull())
    .addColumn('team_id', 'text')
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('wire_status', 'text', (column) => column.notNull())
    .addColumn('node_id', 'text')
    .addColumn('ended_at', 'integer')
    .addColumn('record', 'text', (column) => column.notNull())
    .addColumn('secrets', 'text')
    .execute();
  await db.schema.createIndex('sandboxes_by_state').on('sandboxes').columns(['state', 'seq']).execute();
  await db.schema
    .createIndex('sandboxes_by_status')
    .on('sandboxes')
    .columns(['wire_status', 'seq'])
    .execute();
  await db.schema.createIndex('sandboxes_by_owner').on('sandboxes').columns(['owner_id', 'seq']).execute();
  await db.schema.createIndex('sandboxes_by_team').on('sandboxes').columns(['team_id', 'seq']).execute();
  await db.schema.createIndex('sandboxes_by_end').on('sandboxes').column('ended_at').execute();
  await db.schema
    .createTable('sandbox_labels')
    .addColumn('sandbox_id', 'text', (column) =>
      column.notNull().references('sandboxes.id').onDelete('cascade'),
    )
    .addColumn('label', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('sandbox_labels_key', ['sandbox_id', 'label'])
    .execute();
  await db.schema.createIndex('sandbox_labels_by_label').on('sandbox_labels').column('label').execute();
  await db.schema
    .createTable('reservations')
    .addColumn('sandbox_id', 'text', (column) =>
      column.primaryKey().references('sandboxes.id').onDelete('cascade'),
    )
    .addColumn('node_id', 'text', (column) => column.notNull())
    .addColumn('vcpus', 'integer', (column) => column.notNull())
    .addColumn('memory_mib', 'integer', (column) => column.notNull())
    .addColumn('disk_gib', 'real', (column) => column.notNull())
    .execute();
  await db.schema
    .createTable('idempotency')
    .addColumn('user_id', 'text', (column) => column.notNull())
    .addColumn('key', 'text', (column) => column.notNull())
    .addColumn('body_hash', 'text', (column) => column.notNull())
    .addColumn('sandbox_id', 'text', (column) =>
      column.notNull().references('sandboxes.id').onDelete('cascade'),
    )
    .addPrimaryKeyConstraint('idempotency_key', ['user_id', 'key'])
    .execute();
  await db.schema.createIndex('idempotency_by_sandbox').on('idempotency').column('sandbox_id').execute();
  await db.schema
    .createTable('nodes')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('info', 'text', (column) => column.notNull())
    .addColumn('seen_at', 'integer', (column) => column.notNull())
    .execute();
  await db.schema
    .createTable('image_builds')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('image', 'text', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('error', 'text')
    .addColumn('created_at', 'integer', (column) => column.notNull())
    .addColumn('completed_at', 'integer')
    .execute();
}

async function createCheckpoints(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('checkpoints')
    .addColumn('seq', 'integer', (column) => column.primaryKey().autoIncrement())
    .addColumn('id', 'text', (column) => column.notNull().unique())
    // No reference: a checkpoint outlives its sandbox's record.
    .addColumn('sandbox_id', 'text', (column) => column.notNull())
    .addColumn('owner_id', 'text', (column) => column.notNull())
    .addColumn('team_id', 'text')
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('node_id', 'text', (column) => column.notNull())
    .addColumn('expires_at', 'integer')
    .addColumn('updated_at', 'integer', (column) => column.notNull())
    .addColumn('record', 'text', (column) => column.notNull())
    .addColumn('secrets', 'text')
    .execute();
  for (const [name, columns] of [
    ['checkpoints_by_sandbox', ['sandbox_id', 'seq']],
    ['checkpoints_by_state', ['state', 'seq']],
    ['checkpoints_by_owner', ['owner_id']],
    ['checkpoints_by_expiry', ['expires_at']],
  ] as const)
    await db.schema
      .createIndex(name)
      .on('checkpoints')
      .columns([...columns])
      .execute();
}

async function createAccounts(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('users')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('name', 'text', (column) => column.notNull().unique())
    .addColumn('is_admin', 'integer', (column) => column.notNull())
    .addColumn('created_at', 'integer', (column) => column.notNull())
    .execute();
  await db.schema
    .createTable('teams')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('name', 'text', (column) => column.notNull().unique())
    .addColumn('personal_of', 'text', (column) => column.references('users.id'))
    .addColumn('created_at', 'integer', (column) => column.notNull())
    .execute();
  await db.schema
    .createTable('team_members')
    .addColumn('team_id', 'text', (column) => column.notNull().references('teams.id'))
    .addColumn('user_id', 'text', (column) => column.notNull().references('users.id'))
    .addColumn('role', 'text', (column) => column.notNull())
    .addColumn('joined_at', 'integer', (column) => column.notNull())
    .addPrimaryKeyConstraint('team_members_key', ['team_id', 'user_id'])
    .execute();
  await db.schema.createIndex('team_members_by_user').on('team_members').column('user_id').execute();
  await db.schema
    .createTable('api_keys')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('user_id', 'text', (column) => column.notNull().references('users.id'))
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('prefix', 'text', (column) => column.notNull())
    .addColumn('hash', 'text', (column) => column.notNull().unique())
    .addColumn('created_at', 'integer', (column) => column.notNull())
    .addColumn('last_used_at', 'integer')
    .addColumn('revoked_at', 'integer')
    .execute();
}

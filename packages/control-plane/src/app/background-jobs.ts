/** `POST /sandbox/background-jobs/status:batchGet`: reads the exit files that Prime's SDK lets its jobs write. */
import type { BatchJobs, JobReference } from '@sandlot/protocol';
import { maySee } from '../domain/access.js';
import type { SandboxRecord } from '../domain/record.js';
import { wireStatus } from '../domain/wire-status.js';
import { findSandboxes } from '../store/sandboxes.js';
import { mapBounded } from './bounded.js';
import type { AppContext, Caller } from './context.js';

/** Exit files read at once. */
const readsAtOnce = 16;

/** An exit file holds one number. */
const maxExitBytes = 64;

type JobStatus = BatchJobs['statuses'][number];
type JobError = BatchJobs['errors'][number];

/** States of jobs; each stands in one of the lists. */
export async function batchGetJobs(
  app: AppContext,
  caller: Caller,
  jobs: readonly JobReference[],
): Promise<BatchJobs> {
  const records = await findSandboxes(app.store.db, [...new Set(jobs.map((job) => job.sandbox_id))]);
  const results = await mapBounded(jobs, readsAtOnce, (job) =>
    readJob(app, caller, job, records.get(job.sandbox_id)),
  );
  return {
    statuses: results.filter((result): result is JobStatus => 'completed' in result),
    errors: results.filter((result): result is JobError => 'code' in result),
  };
}

async function readJob(
  app: AppContext,
  { actor, requestId }: Caller,
  job: JobReference,
  record: SandboxRecord | undefined,
): Promise<JobStatus | JobError> {
  const { sandbox_id, job_id } = job;
  const names = { sandbox_id, job_id };
  if (record === undefined || !maySee(actor, record))
    return { ...names, code: 'NOT_FOUND', message: `There is no sandbox ${sandbox_id} for this key.` };
  const status = wireStatus(record, app.now());
  if (status !== 'RUNNING' || record.nodeId === null)
    return { ...names, code: 'NOT_RUNNING', message: `Sandbox ${sandbox_id} is ${status}.` };
  try {
    const file = await app.fleet
      .client(record.nodeId, requestId)
      .readFile(sandbox_id, `/tmp/job_${job_id}.exit`, maxExitBytes);
    const text = file.found
      ? Buffer.from(file.contentBase64 ?? '', 'base64')
          .toString('utf8')
          .trim()
      : '';
    // Made but not written yet: the job ends at this very moment.
    if (text === '') return { ...names, completed: false };
    const exitCode = Number(text);
    if (!Number.isInteger(exitCode))
      return { ...names, code: 'RUNTIME_ERROR', message: `The exit file of job ${job_id} holds no number.` };
    return { ...names, completed: true, exit_code: exitCode };
  } catch (error) {
    app.log.warn({ err: error, sandboxId: sandbox_id }, 'the exit file of a job could not be read');
    const why = error instanceof Error ? error.message : String(error);
    return {
      ...names,
      code: 'RUNTIME_ERROR',
      message: `The state of job ${job_id} could not be read: ${why}`,
    };
  }
}

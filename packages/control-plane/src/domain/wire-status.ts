/** The wire's name for a record's state, and its error fields. Used wherever a record is answered or filtered. */
import { type ErrorContext, endings, type SandboxStatus } from '@sandlot/protocol';
import type { SandboxRecord } from './record.js';
import { lostGraceMs } from './states.js';

type StatusSource = Pick<SandboxRecord, 'state' | 'reason' | 'stateSince'>;

/** Wire status at a moment: a lost sandbox is RUNNING for its grace, then ERROR. */
export function wireStatus(record: StatusSource, now: number): SandboxStatus {
  switch (record.state) {
    case 'pending':
      return 'PENDING';
    case 'starting':
      return 'PROVISIONING';
    case 'running':
    case 'snapshotting':
      return 'RUNNING';
    case 'pausing':
    case 'paused':
    case 'resuming':
      return 'PAUSED';
    case 'stopping':
    case 'stopped':
      return record.reason === null ? 'TERMINATED' : endings[record.reason].status;
    case 'failed': {
      const status = record.reason === null ? 'ERROR' : endings[record.reason].status;
      return status === 'TERMINATED' ? 'ERROR' : status;
    }
    case 'lost':
      return now - record.stateSince < lostGraceMs ? 'RUNNING' : 'ERROR';
  }
}

/** Error fields of the wire; both null while nothing is wrong. */
export function wireError(
  record: StatusSource & Pick<SandboxRecord, 'message'>,
  now: number,
): Pick<ErrorContext, 'errorType' | 'errorMessage'> {
  if (record.state === 'lost' && wireStatus(record, now) === 'ERROR')
    return { errorType: 'NODE_LOST', errorMessage: endings.NODE_LOST.message };
  if (record.reason === null) return { errorType: null, errorMessage: null };
  const ending = endings[record.reason];
  if (ending.errorType === null) return { errorType: null, errorMessage: null };
  return { errorType: ending.errorType, errorMessage: record.message ?? ending.message };
}

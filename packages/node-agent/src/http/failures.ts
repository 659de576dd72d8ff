/** Errors of the node's parts as HTTP answers of its API. The control plane turns them into the public ones. */
import { ImageError } from '@sandlot/images';
import type { ImageErrorCode } from '@sandlot/protocol';
import { MachineEndedError, VmmError } from '@sandlot/vmm';
import { GuestUnreachableError } from '../guest/channel.js';
import { GuestCallError } from '../guest/guest-client.js';
import { NetworkError } from '../network/network.js';
import { SandboxConflictError } from '../sandbox/conflict.js';
import { DamagedFileError } from '../snapshots/checksums.js';

const statusOfImageError: Partial<Record<ImageErrorCode, number>> = {
  'invalid-reference': 422,
  'not-found': 404,
  unauthorized: 403,
  unreachable: 502,
  'rate-limited': 429,
  'in-use': 409,
  'no-space': 507,
};

/** Status and `{code, message}`. */
export function failureOf(error: unknown): { status: number; body: { code: string; message: string } } {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof ImageError) {
    return { status: statusOfImageError[error.code] ?? 422, body: { code: error.code, message } };
  }
  if (error instanceof DamagedFileError) return { status: 409, body: { code: 'damaged', message } };
  if (error instanceof SandboxConflictError || error instanceof MachineEndedError)
    return { status: 409, body: { code: 'conflict', message } };
  if (error instanceof GuestCallError) return { status: error.status, body: { code: error.code, message } };
  if (error instanceof GuestUnreachableError)
    return { status: 503, body: { code: 'guest-unreachable', message } };
  if (error instanceof NetworkError) {
    const status = error.code === 'unsupported' ? 501 : error.code === 'invalid-policy' ? 422 : 500;
    return { status, body: { code: error.code, message } };
  }
  if (error instanceof VmmError) {
    const status = error.code === 'no-space' ? 507 : error.code === 'aborted' ? 409 : 500;
    return { status, body: { code: error.code, message } };
  }
  const { statusCode, code } = error as { statusCode?: number; code?: unknown };
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return { status: 507, body: { code: 'no-space', message: `the disk of the node is full: ${message}` } };
  return { status: statusCode ?? 500, body: { code: statusCode ? 'bad-request' : 'internal', message } };
}

/**
 * The gateway's routes, below `{gateway_url}/{user_ns}/{job_id}`, and what its bearer token says.
 * The token is `v1.<base64url of the JSON claims>.<base64url Ed25519 signature of the first two
 * parts>`: signed by the control plane, checked by the node agent with the public key alone.
 */
import type { View } from './view.js';

/** What a token says. */
export interface GatewayTokenClaims {
  /** Sandbox id; equals `job_id`. */
  sub: string;
  /** Generation that it is good for. */
  gen: number;
  /** Seconds since 1970. */
  exp: number;
  /** It may only run commands in the default view of the sandbox, and reach what runs there. */
  view?: true;
}

/** `POST …/exec`. */
export interface GatewayExecRequest {
  command: string;
  working_dir?: string | null;
  env?: Record<string, string> | null;
  sandbox_id?: string;
  /** Seconds, whole or not. */
  timeout?: number;
  user?: string | null;
  /** Absent: the default view of the sandbox, if it has one. */
  view?: View | null;
}

/** Its answer. */
export interface GatewayExecResponse {
  stdout: string;
  stderr: string;
  exit_code: number;
}

/** Largest window of `read-file`, bytes; above it 413. */
export const readFileMaxBytes = 10 * 1024 * 1024;

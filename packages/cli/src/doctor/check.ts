/** What one check of `doctor` finds. */
export interface Finding {
  name: string;
  result: 'ok' | 'warn' | 'fail';
  /** What was seen. */
  seen: string;
  /** What follows from it and what to do; absent when all is well. */
  advice?: string;
}

/** A check: looks, never changes anything. */
export type Check = (host: DoctorHost) => Finding | Promise<Finding>;

/** What checks look at; tests bring their own. */
export interface DoctorHost {
  isRoot: boolean;
  dataFolder: string;
  guestAssets: string;
  /** Standard output and error of a program, or undefined when it is not there. */
  runProgram(file: string, args: readonly string[]): string | undefined;
  readText(file: string): string | undefined;
  exists(file: string): boolean;
  canOpen(file: string): boolean;
  freeBytes(folder: string): number | undefined;
  memoryBytes: number;
  cores: number;
  nowMs: number;
  /** Where the server listens, or would. */
  listen: { host: string; port: number };
  /** True when the TCP address can be listened on. */
  canListen(host: string, port: number): Promise<boolean>;
  /** Answer of `GET /api/v1/status`, when the server runs. */
  serverStatus: { accelerator: string | null; acceleratorReason: string | null } | undefined;
}

/** A finding without advice. */
export function ok(name: string, seen: string): Finding {
  return { name, result: 'ok', seen };
}

/** Something works less well. */
export function warn(name: string, seen: string, advice: string): Finding {
  return { name, result: 'warn', seen, advice };
}

/** Without this nothing starts. */
export function fail(name: string, seen: string, advice: string): Finding {
  return { name, result: 'fail', seen, advice };
}

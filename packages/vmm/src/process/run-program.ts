/** Runs a short program and gives its output: for versions and measurements of the host, and copies of files. */
import { execFile } from 'node:child_process';
import { VmmError } from '../driver.js';

/** Standard output of `argv`. Throws {@link VmmError}: `vmm-missing` when there is no such program, `start-failed` when it fails or does not end within `timeoutMs`. */
export function runProgram(
  argv: readonly string[],
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<string> {
  const [program, ...rest] = argv;
  return new Promise((resolve, reject) => {
    execFile(
      program!,
      rest,
      { timeout: timeoutMs, killSignal: 'SIGKILL', maxBuffer: 1024 * 1024, ...(signal ? { signal } : {}) },
      (error, stdout, stderr) => {
        if (!error) return resolve(stdout);
        const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
        reject(
          new VmmError(
            missing ? 'vmm-missing' : 'start-failed',
            missing
              ? `'${program}' is not installed or not in PATH; install the package that has it`
              : `'${argv.join(' ')}' failed: ${stderr.trim() || error.message}`,
            { cause: error },
          ),
        );
      },
    );
  });
}

/**
 * The rate of this host's time stamp counter, which an emulated guest reads and cannot measure
 * itself. Measured once a boot and kept; called when the QEMU driver describes the host.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { VmmError } from '../driver.js';
import { readBootId } from '../process/process-identity.js';
import { runProgram } from '../process/run-program.js';

interface Kept {
  bootId: string;
  tscKhz: number;
}

/** Two measurements of one counter differ by less; it is the same host, so the kept value (and with it every template) stays. */
const sameRateWithin = 2e-4;

/** Which rate to use after measuring `measured` on a host where `kept` was used before. Pure. */
export function chooseTscKhz(measured: number, kept: number | undefined): number {
  if (kept !== undefined && Math.abs(measured - kept) <= kept * sameRateWithin) return kept;
  return measured;
}

/** Rate in kHz. Throws {@link VmmError} `start-failed` when it cannot be measured. */
export async function measureTscKhz(program: string, stateFolder: string): Promise<number> {
  const path = join(stateFolder, 'tsc.json');
  const bootId = await readBootId();
  const kept = await readKept(path);
  if (kept?.bootId === bootId) return kept.tscKhz;
  const output = await runProgram([program], 10_000);
  const measured = Number(output.trim());
  // From the slowest 64-bit PC to far above the fastest: outside of it the answer is no rate.
  if (!Number.isInteger(measured) || measured < 200_000 || measured > 20_000_000) {
    throw new VmmError(
      'start-failed',
      `${program} printed ${JSON.stringify(output)}, which is no rate in kHz`,
    );
  }
  const tscKhz = chooseTscKhz(measured, kept?.tscKhz);
  await mkdir(stateFolder, { recursive: true });
  await writeFile(path, JSON.stringify({ bootId, tscKhz } satisfies Kept));
  return tscKhz;
}

async function readKept(path: string): Promise<Kept | undefined> {
  try {
    const kept = JSON.parse(await readFile(path, 'utf8')) as Partial<Kept>;
    return typeof kept.bootId === 'string' && typeof kept.tscKhz === 'number' ? (kept as Kept) : undefined;
  } catch {
    return undefined;
  }
}

/** What every place of the fidelity table is made from and what it answers. */
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';

/** What is the same in all places. */
export interface Inputs {
  /** The checkout. */
  root: string;
  /** What is kept between runs. */
  cache: string;
  /** Folder with the programs of the probes; every place has it at {@link guestFolder}. */
  kit: string;
  /** The image's only layer. */
  layer: string;
  /** The image as docker-archive. */
  archive: string;
  /** Content key of the image. */
  imageKey: string;
  memoryMiB: number;
  vcpus: number;
  /** Ids to run; all if empty. */
  only: readonly string[];
  /** Longest time for all probes. */
  timeoutMs: number;
  say: (text: string) => void;
}

/** What a place has answered. */
export interface PlaceResult {
  /** Column's name. */
  name: string;
  /** Versions and settings, for the page. */
  about: string;
  values: Map<string, string>;
  /** Milliseconds by probe. */
  times: Map<string, number>;
  /** Ids that were to run, if not all. */
  ran?: readonly string[];
  /** Why there is no column, instead of values. */
  missing?: string;
}

/** Where the probes lie in every place. */
export const guestFolder = '/opt/fidelity';

/** argv of the runner. */
export function runnerArgv(inputs: Inputs): string[] {
  return ['python3', `${guestFolder}/run.py`, guestFolder, ...inputs.only];
}

/** Collects the lines of run.py. */
export class ResultLines {
  readonly values = new Map<string, string>();
  readonly times = new Map<string, number>();
  ended = false;

  add(line: string): void {
    if (!line.startsWith('{')) return;
    const { id, value, ms } = JSON.parse(line) as { id: string; value: string; ms: number };
    if (id === 'end') this.ended = true;
    else {
      this.values.set(id, value);
      this.times.set(id, ms);
    }
  }

  addAll(text: string): void {
    for (const line of text.split('\n')) this.add(line);
  }

  async read(stream: Readable): Promise<void> {
    for await (const line of createInterface({ input: stream })) this.add(line);
  }
}

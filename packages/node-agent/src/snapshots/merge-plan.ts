/**
 * Decides which layers of a disk are made one, and when. Pure. Used by `chain-merger.ts`; the figures behind the numbers are in
 * docs/rfd/0003-snapshots-and-chains.md.
 */

/** How many layers a disk may stand above. */
export const chainLimits = {
  /** From here on some are merged. */
  mergeAt: 8,
  /** A save of a machine whose disk stands above so many waits for a merge. */
  cap: 16,
  /** A merge makes at least so many one. */
  leastRun: 3,
} as const;

/**
 * Index of the first of the layers, up to the highest, that are to be made one. Takes also what is lower as long as that is not
 * more than twice as large as all above it: so a byte is copied again only when what it lies with has grown by a third, and not with
 * every merge.
 * @param sizes of the layers, the lowest first; at least as many as the least run
 */
export function planMerge(sizes: readonly number[]): number {
  let from = sizes.length - chainLimits.leastRun;
  let total = sizes.slice(from).reduce((sum, size) => sum + size, 0);
  while (from > 0 && (sizes[from - 1] as number) <= 2 * total) total += sizes[--from] as number;
  return from;
}

/**
 * How many of the layers to choose from, the lowest first: those that another disk stands above too, so that one merge serves both;
 * all of them if these are few.
 */
export function mergeableLayers(layers: readonly string[], others: readonly (readonly string[])[]): number {
  const isShared = (id: string) => others.some((other) => other.includes(id));
  const firstOwn = layers.findIndex((id) => !isShared(id));
  const shared = firstOwn < 0 ? layers.length : firstOwn;
  return shared >= chainLimits.leastRun ? shared : layers.length;
}

/** The layers after a merge; undefined when those that were merged do not lie there one above the other. */
export function withMerged(
  layers: readonly string[],
  run: readonly string[],
  merged: string,
): string[] | undefined {
  const at = layers.indexOf(run[0] as string);
  if (at < 0 || run.some((id, i) => layers[at + i] !== id)) return undefined;
  return [...layers.slice(0, at), merged, ...layers.slice(at + run.length)];
}

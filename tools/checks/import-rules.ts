/** The direction of imports, as data (design: "Dependencies point one way"). Held by imports.test.ts. */

/** Package -> packages of ours that it may import. */
export const packageRules: Record<string, readonly string[]> = {
  protocol: [],
  images: ['protocol'],
  vmm: [],
  'node-agent': ['protocol', 'vmm', 'images'],
  'control-plane': ['protocol'],
  sdk: ['protocol'],
  cli: ['sdk'],
  dashboard: ['sdk'],
};

/**
 * Folder of control-plane/src -> folders beside it that it may import. Files directly in src put the
 * parts together and may import all of them; a folder may import such a file only if that file imports
 * nothing of ours (a version, an option).
 */
export const controlPlaneRules: Record<string, readonly string[]> = {
  // Listeners and the gateway's forwarder: bytes only, nothing of what they mean.
  edge: [],
  http: ['app', 'domain'],
  app: ['scheduler', 'domain', 'store', 'nodes'],
  scheduler: ['domain'],
  store: ['domain'],
  nodes: ['domain'],
  domain: [],
};

/** Folders that decide in pure code: no clock, no randomness, no input or output. */
export const pureFolders = ['packages/control-plane/src/domain/', 'packages/control-plane/src/scheduler/'];

/** What pure code must not contain, with the reason shown. */
export const impureCalls: { pattern: RegExp; what: string }[] = [
  { pattern: /\bDate\.now\(|\bnew Date\(\)|\bperformance\.now\(/, what: 'reads the clock' },
  { pattern: /\bMath\.random\(|\brandomUUID\(|\brandomBytes\(/, what: 'uses randomness' },
  { pattern: /\bsetTimeout\(|\bsetInterval\(/, what: 'waits' },
  { pattern: /from 'node:/, what: 'imports a module of Node' },
  { pattern: /\bfetch\(|\bprocess\./, what: 'does input or output' },
];

/** Groups of files that import each other in a circle; each group once, sorted. */
export function findCycles(imports: ReadonlyMap<string, readonly string[]>): string[][] {
  // Tarjan's strongly connected components: https://doi.org/10.1137/0201010
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const cycles: string[][] = [];
  const visit = (file: string): void => {
    index.set(file, index.size);
    low.set(file, index.get(file)!);
    stack.push(file);
    for (const next of imports.get(file) ?? []) {
      if (!index.has(next)) {
        visit(next);
        low.set(file, Math.min(low.get(file)!, low.get(next)!));
      } else if (stack.includes(next)) {
        low.set(file, Math.min(low.get(file)!, index.get(next)!));
      }
    }
    if (low.get(file) !== index.get(file)) return;
    const group = stack.splice(stack.indexOf(file));
    if (group.length > 1 || imports.get(file)?.includes(file)) cycles.push(group.sort());
  };
  for (const file of imports.keys()) if (!index.has(file)) visit(file);
  return cycles;
}

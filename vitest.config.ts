/**
 * Six sets of tests. `parts`: beside the code of a package, and the checks of the house; files run side
 * by side. `whole`: real servers and machines under tests/; tools/test.sh runs them one file at a time.
 * `long`, `clients` (Prime's real clients) and `linux` (a real Linux machine: hard images, Docker, heavy
 * software): what takes too long for every change; tools/test-long.sh runs them. `kvm`: on a host with KVM, which
 * tools/test-kvm.sh makes where there is none.
 * See docs/testing.md.
 */
import { defineConfig } from 'vitest/config';

const limits = { testTimeout: 60_000, hookTimeout: 120_000, pool: 'forks' } as const;

export default defineConfig({
  test: {
    maxWorkers: 2,
    minWorkers: 1,
    teardownTimeout: 20_000,
    projects: [
      {
        test: {
          ...limits,
          name: 'parts',
          include: ['packages/*/src/**/*.test.ts', 'packages/*/tests/**/*.test.ts', 'tools/**/*.test.ts'],
        },
      },
      {
        test: {
          ...limits,
          name: 'whole',
          include: ['tests/**/*.test.ts'],
          exclude: [
            'tests/long/**',
            'tests/clients/**',
            'tests/linux/**',
            'tests/kvm/**',
            'tests/bench/**',
            '**/node_modules/**',
          ],
        },
      },
      { test: { ...limits, name: 'long', include: ['tests/long/**/*.test.ts'] } },
      { test: { ...limits, name: 'clients', include: ['tests/clients/**/*.test.ts'] } },
      {
        test: {
          // In a machine in which everything takes twenty times as long.
          ...{ testTimeout: 900_000, hookTimeout: 900_000, pool: 'forks' },
          name: 'kvm',
          include: ['tests/kvm/**/*.test.ts'],
          expect: { poll: { timeout: 30_000 } },
          server: { deps: { external: [/\/packages\/[^/]+\/dist\//] } },
        },
      },
      {
        test: {
          ...limits,
          testTimeout: 180_000,
          hookTimeout: 300_000,
          name: 'linux',
          include: ['tests/linux/**/*.test.ts'],
        },
      },
    ],
  },
});

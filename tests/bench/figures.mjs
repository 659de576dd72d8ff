// The figures of SPECIFICATION.md as data, and how a measurement becomes a line. Pure; used by run.mjs.

/** Kinds of limit: how product and bare compare. */
const judges = {
  /** product at most `limit` times bare */
  ratio: ({ product, bare }, limit) => product <= bare * limit,
  /** product at least `limit` times bare */
  share: ({ product, bare }, limit) => product >= bare * limit,
  /** product at most bare plus `limit` */
  above: ({ product, bare }, limit) => product <= bare + limit,
  /** product at most `limit` */
  most: ({ product }, limit) => product <= limit,
  reported: () => true,
};

const shown = {
  ratio: (limit) => `<=${limit.toFixed(2)}x`,
  share: (limit) => `>=${limit.toFixed(2)}x`,
  above: (limit, unit) => `<=bare+${limit}${unit}`,
  most: (limit, unit) => `<=${limit}${unit}`,
  reported: () => '-',
};

/** name -> unit, kind of limit, limit. */
export const figures = {
  'restore-first-answer': ['ms', 'ratio', 3.0],
  'restore-first-sync': ['ms', 'reported'],
  'create-first-exec': ['ms', 'ratio', 1.6],
  'exec-true': ['ms', 'above', 5],
  'burst-30': ['ms', 'ratio', 1.3],
  'burst-30-failures': ['', 'most', 0],
  'unseen-image-first-exec': ['ms', 'ratio', 2],
  'build-1gb-peak-memory': ['MiB', 'most', 250],
  'idle-private-memory': ['MiB', 'ratio', 1.3],
  'upload-256mib': ['MB/s', 'share', 0.6],
  'download-256mib': ['MB/s', 'share', 0.6],
  'build-200k-files': ['ms', 'ratio', 2],
  'build-20k-files-one-folder': ['ms', 'reported'],
  'churn-200-processes': ['', 'most', 0],
  'churn-200-files': ['', 'most', 0],
  'churn-200-descriptors': ['', 'most', 0],
  // A heap that breathes is no leak; what a cycle leaves for good is.
  'churn-200-memory-slope': ['KiB/cycle', 'most', 16],
  // Copies of a running machine (group copies); bare is a save and restore by plain QMP.
  'fork-source-pause': ['ms', 'ratio', 1.5],
  'fork-source-pause-300mib': ['ms', 'ratio', 1.3],
  'fork-16-first-exec': ['ms', 'ratio', 1.3],
  'fork-child-private-memory': ['MiB', 'ratio', 1.2],
  'resume-first-exec': ['ms', 'ratio', 1.5],
  'rollback-100mib-first-exec': ['ms', 'ratio', 1.5],
  // Bare is the 6th to 15th.
  'checkpoint-200th': ['ms', 'ratio', 1.3],
  // A real Linux machine (group linux); bare is a plain VM of the same image.
  'linux-boot': ['ms', 'ratio', 1.2],
  'linux-docker-ready': ['ms', 'ratio', 1.2],
  'linux-docker-run': ['ms', 'ratio', 1.2],
  'linux-fio-randread': ['/s', 'share', 0.9],
  'linux-fio-write': ['MB/s', 'share', 0.9],
  'linux-fio-fsync': ['/s', 'share', 0.9],
  'linux-untar-50k': ['/s', 'share', 0.9],
  'linux-iperf3': ['Mbit/s', 'share', 0.9],
  // Bare is an exec outside of any view in the same sandbox.
  'linux-exec-sealed': ['ms', 'ratio', 2],
  'linux-view-made': ['ms', 'ratio', 10],
  // The load (tests/bench/load); bare is a process that does nothing, or the rate that was wanted.
  'load-burst': ['s', 'reported'],
  'load-streams-at-once': ['ms', 'reported'],
  'load-streams-at-once-failures': ['', 'most', 0],
  'load-streams-lost': ['', 'most', 0],
  'load-errors': ['', 'most', 0],
  'load-calls': ['/s', 'share', 0.98],
  'load-status-p99': ['ms', 'most', 50],
  'load-exec-p99': ['ms', 'reported'],
  'load-create-p99': ['ms', 'reported'],
  'load-loop-control-plane': ['ms', 'most', 100],
  'load-loop-node-agent': ['ms', 'most', 100],
  'load-memory-control-plane': ['%', 'most', 5],
  'load-memory-node-agent': ['%', 'most', 5],
  'load-cpu-control-plane': ['%', 'reported'],
  'load-cpu-node-agent': ['%', 'reported'],
  'load-cpu-client': ['%', 'reported'],
  // A window of 1 MiB, and what is on its way through two processes.
  'load-stalled-client': ['KiB', 'most', 1280],
};

/**
 * `name product bare ratio limit verdict`. `explained`: figure name -> number of the RFD that explains why it is over.
 */
export function formatFigure(name, measured, explained = new Map()) {
  const [unit, kind, limit] = figures[name];
  const number = (value) => (value === undefined ? '-' : `${Math.round(value * 100) / 100}${unit}`);
  const ratio = measured.bare ? (measured.product / measured.bare).toFixed(2) : '-';
  const over = explained.has(name) ? `OVER-explained(${explained.get(name)})` : 'OVER';
  const verdict = judges[kind](measured, limit) ? 'ok' : over;
  return [
    name,
    number(measured.product),
    number(measured.bare),
    ratio,
    shown[kind](limit, unit),
    verdict,
  ].join(' ');
}

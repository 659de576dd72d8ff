/**
 * Pure: `config.json` of an OCI bundle with the defaults of `docker run` (its 14 capabilities, masked and read-only
 * paths, mounts, and files bound over /etc), and Docker's seccomp profile in the form of the OCI. Used by container.ts.
 */

const capabilities = [
  ...['CHOWN', 'DAC_OVERRIDE', 'FSETID', 'FOWNER', 'MKNOD', 'NET_RAW', 'SETGID', 'SETUID'],
  ...['SETFCAP', 'SETPCAP', 'NET_BIND_SERVICE', 'SYS_CHROOT', 'KILL', 'AUDIT_WRITE'],
].map((name) => `CAP_${name}`);

/** What differs between bundles. */
export interface BundleOptions {
  folder: string;
  argv: readonly string[];
  seccomp: object | undefined;
  memoryMiB: number;
  /** Path of its network namespace. */
  network: string;
}

/** The configuration. */
export function bundleConfig(options: BundleOptions): object {
  const { folder, argv, seccomp, memoryMiB, network } = options;
  const strict = ['nosuid', 'noexec', 'nodev'];
  const bound = ['resolv.conf', 'hostname', 'hosts'].map((name) => ({
    destination: `/etc/${name}`,
    type: 'bind',
    source: `${folder}/${name}`,
    options: ['rbind', 'rprivate'],
  }));
  return {
    ociVersion: '1.0.2',
    process: {
      user: { uid: 0, gid: 0, additionalGids: [0] },
      args: argv,
      env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/root'],
      cwd: '/',
      capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
      oomScoreAdj: 0,
    },
    root: { path: `${folder}/rootfs`, readonly: false },
    hostname: 'fidelity',
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc', options: strict },
      {
        destination: '/dev',
        type: 'tmpfs',
        source: 'tmpfs',
        options: ['nosuid', 'strictatime', 'mode=755', 'size=65536k'],
      },
      {
        destination: '/dev/pts',
        type: 'devpts',
        source: 'devpts',
        options: ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620', 'gid=5'],
      },
      { destination: '/sys', type: 'sysfs', source: 'sysfs', options: [...strict, 'ro'] },
      { destination: '/sys/fs/cgroup', type: 'cgroup', source: 'cgroup', options: ['ro', ...strict] },
      { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: strict },
      {
        destination: '/dev/shm',
        type: 'tmpfs',
        source: 'shm',
        options: [...strict, 'mode=1777', 'size=67108864'],
      },
      ...bound,
    ],
    linux: {
      namespaces: [
        ...['pid', 'ipc', 'uts', 'mount'].map((type) => ({ type })),
        { type: 'network', path: network },
      ],
      resources: { memory: { limit: memoryMiB * 2 ** 20 }, devices: deviceRules },
      maskedPaths: [
        ...[
          'asound',
          'acpi',
          'kcore',
          'keys',
          'latency_stats',
          'timer_list',
          'timer_stats',
          'sched_debug',
          'scsi',
        ].map((name) => `/proc/${name}`),
        '/sys/firmware',
        '/sys/devices/virtual/powercap',
      ],
      readonlyPaths: ['bus', 'fs', 'irq', 'sys', 'sysrq-trigger'].map((name) => `/proc/${name}`),
      ...(seccomp ? { seccomp } : {}),
    },
  };
}

const deviceRules = [
  { allow: false, access: 'rwm' },
  // Making nodes is allowed, opening only these.
  { allow: true, type: 'c', access: 'm' },
  { allow: true, type: 'b', access: 'm' },
  ...(
    [
      [1, 3],
      [1, 5],
      [1, 7],
      [1, 8],
      [1, 9],
      [5, 0],
      [5, 1],
      [5, 2],
    ] as const
  ).map(([major, minor]) => ({ allow: true, type: 'c', major, minor, access: 'rwm' })),
  { allow: true, type: 'c', major: 136, access: 'rwm' },
];

/** Docker's `default.json`, as far as it is read here. */
export interface DockerProfile {
  defaultAction: string;
  defaultErrnoRet?: number;
  archMap: { architecture: string; subArchitectures: string[] | null }[];
  syscalls: {
    names: string[];
    action: string;
    errnoRet?: number;
    args?: object[] | null;
    includes?: Filter;
    excludes?: Filter;
  }[];
}

interface Filter {
  caps?: string[];
  arches?: string[];
  minKernel?: string;
}

/** The rules that hold for these capabilities on amd64 and a kernel newer than any that a rule names. */
export function ociSeccomp(profile: DockerProfile): object {
  const matches = (filter: Filter) =>
    (filter.caps ?? []).some((name) => capabilities.includes(name)) ||
    (filter.arches ?? []).some((name) => name === 'amd64');
  const asksFor = (filter: Filter | undefined) => Boolean(filter?.caps?.length || filter?.arches?.length);
  return {
    defaultAction: profile.defaultAction,
    defaultErrnoRet: profile.defaultErrnoRet,
    architectures: ['SCMP_ARCH_X86_64', 'SCMP_ARCH_X86', 'SCMP_ARCH_X32'],
    syscalls: profile.syscalls
      .filter((rule) => !asksFor(rule.includes) || matches(rule.includes ?? {}))
      .filter((rule) => !asksFor(rule.excludes) || !matches(rule.excludes ?? {}))
      .map(({ names, action, errnoRet, args }) => ({ names, action, errnoRet, args: args ?? [] })),
  };
}

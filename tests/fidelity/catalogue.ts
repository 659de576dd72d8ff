/**
 * The probes of the fidelity table, in the order in which they run. `c` is a function in guest/*.c, `tool` one of
 * guest/tools.sh, `list` one of guest/listings.py (compared by line). Read by main.ts and by tests/e2e/fidelity.test.ts.
 */

/** One probe. */
export interface Probe {
  id: string;
  kind: 'c' | 'tool' | 'list';
  group: string;
  /** What is looked at, for the page. */
  what: string;
  /** Deadline in a guest, seconds. */
  seconds: number;
  /** What the plain VM must show, or the probe itself is broken; lists are only compared. */
  expect: RegExp | undefined;
}

type Row = readonly [id: string, what: string, expect?: string | RegExp, seconds?: number];

const cSeconds = 90;
const toolSeconds = 150;
const listSeconds = 120;

function rows(kind: Probe['kind'], group: string, seconds: number, list: readonly Row[]): Probe[] {
  return list.map(([id, what, expect, own]) => ({
    id,
    kind,
    group,
    what,
    seconds: own ?? seconds,
    expect: typeof expect === 'string' ? new RegExp(`^${escapePattern(expect)}$`) : expect,
  }));
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

const groupsOfInit = ['What is there', 'What a command is given', 'systemd'];
const furtherOfInit = [
  ...['inotify', 'huge-pages', 'mqueue', 'posix-shm', 'clock-runs', 'clock-set', 'rtc', 'hwclock-tool'],
  ...['raise-limits', 'scheduling', 'subreaper', 'orphan', 'keyrings', 'pty', 'dmesg', 'kmsg', 'privileged'],
  ...['bpf-pin', 'tracefs', 'userns', 'userns-all', 'mounts', 'pivot-root'],
  ...['cgroup-memory', 'cgroup-pids', 'cgroup-cpu', 'cgroup-delegation'],
  ...[
    'unshare-user',
    'loop-mount',
    'loop-device',
    'fuse-user',
    'swap-file',
    'zram',
    'device-mapper',
    'nbd',
    'binfmt',
  ],
  ...['ping-socket', 'tun', 'address', 'address-six', 'ping-user', 'ping-gateway', 'links', 'netns'],
  ...['iptables-nft', 'resolve-glibc', 'resolve-musl', 'resolv-conf'],
  ...['modules-tool', 'modules-on-demand', 'sysctl-writes', 'core-dump', 'core-handler', 'oom-kill'],
  ...['sudo-user', 'user-add', 'tmux-session', 'ssh-server', 'script-tool', 'package-install'],
];

/** All probes. Lists come first: later probes load modules and make devices. */
export const probes: readonly Probe[] = [
  ...rows('list', 'What is there', listSeconds, [
    ['mount-table', 'mounts with type and options'],
    ['device-nodes', 'nodes of /dev with number, mode and owner'],
    ['sysctls', 'every setting of /proc/sys that does not follow from memory'],
    ['interface-sysctls', 'settings of the interfaces'],
    ['filesystems', 'file systems known at the start'],
    ['proc-entries', 'entries of /proc'],
    ['sys-entries', 'entries and some values of /sys'],
    ['processor', 'processor flags, size of memory'],
  ]),
  ...rows('tool', 'What is there', toolSeconds, [
    ['kernel-name', 'uname, the kernel config', /Linux 6\.[\s\S]*\/boot/],
    ['device-links', 'links and sockets in /dev', /\/dev\/fd/],
    ['lsblk-tool', 'lsblk, df and findmnt of the root disk', /vda +disk +0/],
    ['names', 'hostname, hosts, machine-id', /hostname is that/],
    ['locales', 'locales', /UTF-8/],
  ]),
  ...rows('c', 'What a command is given', cSeconds, [
    ['limits', 'all resource limits', /nofile 1024 /],
    ['capabilities', 'capabilities, securebits, no-new-privs, seccomp', /CapEff: 000001ffffffffff/],
    ['signals', 'blocked, ignored and caught signals', /SigBlk: 0000000000000000/],
    ['inherited', 'umask, oom_score_adj, timer slack, open files', /umask 0022/],
    ['processors', 'processors', '2 of 2 online, 2 configured'],
    ['propagation', 'propagation of the mounts of the system', /^\/ shared$/m],
    ['session-keyring', 'session keyring', /^_/],
    ['cgroup-own', 'control group of a command', /^0::\//],
    ['cgroup-controllers', 'controllers and options of cgroup v2', /memory[\s\S]*nsdelegate/],
    ['auxv', 'vdso, page size, rseq', /vdso yes/],
    ['tmp', '/tmp', 'same file system as /, mode 1777'],
    ['root-fs', 'kind and mount flags of the root file system', /type ef53/],
  ]),
  ...rows('c', 'Files', cSeconds, [
    ['o-tmpfile', 'O_TMPFILE and linking it', 'works'],
    ['rename-flags', 'renameat2: exchange, no-replace, whiteout', 'works'],
    ['punch-hole', 'fallocate: punch, collapse, zero; SEEK_HOLE', 'works'],
    ['copy-range', 'copy_file_range, FICLONE', /copied/],
    ['statx', 'fields of statx', /birth time yes/],
    ['file-handles', 'open_by_handle_at', 'works'],
    ['fanotify', 'fanotify on a mount', 'works'],
    ['inotify', 'inotify', 'works'],
    ['locks-leases', 'flock, OFD locks, leases, dnotify', 'works'],
    ['xattrs', 'extended attributes', 'user, trusted, security'],
    ['immutable', 'chattr +i', 'works'],
    ['mknod', 'device nodes on disk', 'works'],
    ['many-files', '20,000 files in one folder', '20000 made and removed', 300],
    ['quota', 'quotactl', /./],
    ['acct', 'process accounting', 'works'],
    ['odd-names', 'long, non-UTF-8 names, 1 TiB sparse, high ids', 'works'],
    ['direct-io', 'O_DIRECT, syncfs', 'works'],
    ['trim', 'FITRIM of the root', 'works'],
  ]),
  ...rows('c', 'Memory, IPC, time', cSeconds, [
    ['memfd-seal', 'memfd with a seal', 'works'],
    ['memfd-exec', 'execution of a memfd', 'works'],
    ['huge-pages', 'hugetlb pages and memfd', 'works'],
    ['thp', 'transparent huge pages', /always|madvise/],
    ['mlock', 'mlock, mlockall', 'works'],
    ['mlock-user', 'the same as a user', 'works'],
    ['pkeys', 'protection keys', /./],
    ['mempolicy', 'memory policy', 'works'],
    ['userfaultfd', 'userfaultfd', 'works'],
    ['userfaultfd-user', 'userfaultfd as a user', 'works'],
    ['mqueue', 'POSIX message queues, /dev/mqueue', 'works'],
    ['posix-shm', 'POSIX shared memory and semaphores', 'works'],
    ['sysv-ipc', 'System V IPC', 'works'],
    ['timers', 'timerfd, POSIX timers, alarm clock', 'works'],
    ['clock-steps', 'resolution and source of the clock', /^1 ns/],
    ['clock-runs', 'clocks go forward, the year is right', 'works'],
    ['clock-set', 'setting the clock', /^can be set/],
    ['rtc', 'real time clock', 'agrees with the clock'],
    ['random', 'getrandom, entropy, /dev/hwrng', /^256 bits/],
    ['overcommit', '16 GiB of address space', /unreserved works/],
  ]),
  ...rows('c', 'Processes', cSeconds, [
    ['raise-limits', 'raising limits, nice -10, lower oom_score_adj', 'works'],
    ['scheduling', 'SCHED_FIFO, SCHED_DEADLINE, ioprio', 'works'],
    ['ptrace', 'ptrace, process_vm_readv', 'works'],
    ['pidfd', 'pidfd: open, getfd, signal, poll', 'works'],
    ['subreaper', 'a subreaper gets orphans', 'works'],
    ['orphan', 'whose child an orphan becomes', /^process \d+$/],
    ['seccomp', 'seccomp filter', 'works'],
    ['seccomp-notify', 'seccomp listener', 'works'],
    ['landlock', 'landlock', /^version \d/],
    ['keyrings', 'keys and session keyrings', 'works'],
    ['pty', 'pseudo terminals', /ptmx 666/],
    ['io-ports', 'iopl, /dev/mem, /proc/kcore', /iopl works/],
    ['init-module', 'init_module of garbage', /garbage: E/],
    ['dmesg', 'kernel log', /^Linux version/],
    ['kmsg', '/dev/kmsg', /^works/],
    ['privileged', 'kexec, vhangup, names, Ctrl-Alt-Del', /sethostname works/],
  ]),
  ...rows('c', 'Tracing and io_uring', cSeconds, [
    ['bpf-map', 'eBPF map', 'works'],
    ['bpf-socket', 'eBPF socket filter', 'works'],
    ['bpf-pin', 'eBPF object in /sys/fs/bpf', 'works'],
    ['bpf-tracepoint', 'eBPF on a tracepoint', '5 calls seen'],
    ['bpf-user', 'eBPF as a user', /^E/],
    ['perf-software', 'perf event of software', 'counts'],
    ['perf-hardware', 'perf event of hardware', /./],
    ['perf-user', 'perf event as a user', /./],
    ['tracefs', 'tracefs', /nop/],
    ['io-uring-nop', 'io_uring', 'works'],
    ['io-uring-read', 'io_uring reads a file', 'works'],
  ]),
  ...rows('c', 'Namespaces, mounts, control groups', cSeconds, [
    ['userns', 'user namespace as a user', 'works'],
    ['userns-all', 'all eight namespaces as a user, proc in them', 'works'],
    ['namespaces-root', 'namespaces as root', 'works'],
    ['mounts', 'tmpfs, bind, read-only bind', 'tmpfs, bind, remount, umount'],
    ['mount-api', 'fsopen, fsmount, move_mount', 'works'],
    ['idmapped-mount', 'idmapped mount', 'uid 100000'],
    ['overlay', 'overlay on the root file system', 'works'],
    ['pivot-root', 'pivot_root', 'works'],
    ['cgroup-memory', 'memory limit and its kill', 'signal 9, 1 counted'],
    ['cgroup-pids', 'process limit', 'the third is refused'],
    ['cgroup-cpu', 'CPU limit, freezer, cgroup.kill', 'throttled, frozen, killed'],
    ['cgroup-delegation', 'a group given to a user', 'works'],
  ]),
  ...rows('tool', 'Namespaces, mounts, control groups', toolSeconds, [
    ['unshare-user', 'unshare -Urmnp', /^0 /],
    ['bubblewrap', 'bubblewrap as a user', /^\d+$/],
    ['overlay-tool', 'mount -t overlay', 'hello more hello more'],
    ['loop-mount', 'mount -o loop', 'hello'],
    ['loop-device', 'losetup with partitions', /^disk 660$/],
    ['squashfs', 'squashfs by loop', 'hello'],
    ['fuse', 'FUSE as root', 'hello'],
    ['fuse-user', 'FUSE as a user, in a user namespace', 'hello'],
    ['swap-file', 'swap file', 'file 8188'],
    ['zram', 'swap on zram', 'works'],
    ['device-mapper', 'dmsetup', /^00 00/],
    ['nbd', 'network block device', /^disk 660$/],
    ['freeze', 'fsfreeze, fstrim', 'works'],
    ['binfmt', 'binfmt_misc', 'interpreted'],
  ]),
  ...rows('c', 'Network', cSeconds, [
    ['ipv6-loopback', 'IPv6 on loopback', 'works'],
    ['ipv4-mapped', 'IPv4 through a socket of IPv6', 'works'],
    ['mptcp', 'MPTCP', 'works'],
    ['sctp', 'SCTP', /./],
    ['tcp-congestion', 'congestion control, bbr', /cubic/],
    ['ktls', 'TLS of the kernel', /./],
    ['raw-socket', 'raw socket', 'works'],
    ['ping-socket', 'ping socket as a user', /./],
    ['af-packet', 'packet socket', 'works'],
    ['multicast', 'multicast', 'works'],
    ['abstract-socket', 'abstract and paired sockets', 'works'],
    ['af-alg', 'AF_ALG', 'ba7816bf'],
    ['vsock', 'vsock', /./],
    ['socket-families', 'fourteen other families', /netfilter works/],
    ['tun', 'tun device', 'works, mode 666'],
    ['socket-options', 'privileged socket options', /^all set/],
  ]),
  ...rows('tool', 'Network', toolSeconds, [
    ['address', 'address, route, MTU', /10\.0\.2\.15/],
    ['address-six', 'IPv6 of the interface', /./],
    ['ping-user', 'ping as a user', '1 received'],
    ['ping-six', 'ping ::1', '1 received'],
    ['ping-gateway', 'ping of the gateway', '1 received'],
    ['links', 'fifteen kinds of link', /veth works/],
    ['netns', 'ip netns, veth, ping through it', 'works'],
    ['iptables-nft', 'iptables (nft) MASQUERADE', /MASQUERADE/],
    ['iptables-legacy', 'iptables (legacy) conntrack', /INVALID/],
    ['nftables', 'nft rules and sets', /^\d+$/],
    ['traffic-control', 'tc netem', 'netem'],
    ['wireguard', 'WireGuard', '51999'],
    ['resolve-glibc', 'names by glibc', /no such name/],
    ['resolve-musl', 'names by musl', /Name does not resolve|No such|not exist/i],
    ['resolv-conf', '/etc/resolv.conf is an ordinary file', /can be replaced/],
  ]),
  ...rows('tool', 'Kernel modules and settings', toolSeconds, [
    ['modules-tool', 'modprobe, lsmod, modinfo agree', /built for this kernel/],
    ['module-list', 'forty-one modules by modprobe', /overlay yes/, 400],
    ['modules-on-demand', 'modules loaded by mount', /btrfs loaded/],
    ['sysctl-writes', 'writing thirteen settings', /kernel\.pid_max set/],
    ['core-dump', 'core dump into the folder', /core/],
    ['core-handler', 'core dump into a program', 'signal 11'],
    ['oom-kill', 'memory runs out', 'exit 137, the bystander lives', 90],
  ]),
  ...rows('tool', 'Whole tools', toolSeconds, [
    ['sudo-user', 'sudo', '0'],
    ['user-add', 'useradd, su -', /^fiduser \/home\/fiduser 0022 1024 /],
    ['file-capability', 'setcap, ping with it as a user', /works$/],
    ['acl', 'setfacl', '1'],
    ['git-repository', 'git: 1,000 files, commit, gc, clone, fsck', '1000', 400],
    ['tmux-session', 'tmux', 'works'],
    ['ssh-server', 'sshd, login with a terminal', '/dev/pts/', 90],
    ['gdb-run', 'gdb: break, registers, continue', 'exited normally', 120],
    ['strace-run', 'strace', /^\d+$/],
    ['script-tool', 'script', /dev\/pts/],
    ['package-install', 'dpkg-deb, dpkg -i, apt-get check', /install ok installed/, 120],
    ['hwclock-tool', 'hwclock', /./],
  ]),
  ...rows('tool', 'systemd', toolSeconds, [
    ['process-one', 'process 1', 'systemd'],
    ['systemd-state', 'systemctl is-system-running', 'running'],
    ['journal', 'logger and journalctl', 'hello'],
    ['timer-unit', 'systemd-run', 'works'],
    ['login-session', 'sessions of logind', /^[1-9]/],
  ]),
];

/**
 * Ids of the probes that process 1, its services or udev could change: run in a sandbox with `init: true` too. The
 * others ask the kernel alone.
 */
export const probesOfInit: readonly string[] = probes
  .filter(({ id, group }) => groupsOfInit.includes(group) || furtherOfInit.includes(id))
  .map(({ id }) => id);

/**
 * Differences between a Sandlot sandbox and the plain VM that are right, and why. Read by main.ts. An entry that
 * matches nothing fails the run, so that none outlives its cause. A fault is mended, not listed here.
 */
import type { Explanation } from './compare.js';

const init =
  'Nobody asked for an init: process 1 is the guest agent and no service runs, as in any sandbox of an image. `init: true` boots the image with its systemd.';
const login =
  'The probes on the plain VM run in a login on ttyS0, those in the sandbox by an exec, which is no login: it has no session of logind and a control group of its own, by which it is found and ended.';
const udev =
  'Made by the udev daemon, which runs with `init: true`. The nodes are there, with the owners and modes that udev gives; the agent sees to that.';
const pingGroups =
  "The setting is one of systemd's own defaults, which Debian 12 leaves out and Debian 13 and Docker have: images without file capabilities need it to ping as a user.";
const thinDisk = '`noinit_itable` keeps the kernel from filling a thin disk with zeros.';
const fourOnly =
  'A sandbox has an IPv4 network. The agent switches IPv6 off on the interface, not on loopback, before it comes up.';

const appArmor =
  "Shown only in images with AppArmor's tools. Docker takes the sight of it for an order to load its profile, and without the tools starts no container; on a Debian machine the package of Docker brings them.";

/** Of any sandbox. */
const ofBoth: readonly Explanation[] = [
  {
    probe: 'mount-table',
    lines: /^[-+] \/run tmpfs /,
    why: "Debian's initrd mounts /run noexec. Here it is not: images made for containers execute what they put there.",
  },
  {
    probe: 'mount-table',
    lines: /^\+ \/usr\/lib\/modules\/\S+ ext4 \S*\bro\b/,
    why: "The kernel's modules come from a read-only disk that every sandbox shows where the plain VM has files of its kernel package.",
  },
  {
    probe: 'device-nodes',
    lines: /^\+ \/dev\/vport0p[12] /,
    why: "The ports of the agent's channel to the host.",
  },
  { probe: 'sysctls', lines: /ping_group_range/, why: pingGroups },
  { probe: 'ping-socket', why: pingGroups },
  { probe: 'cgroup-own', why: login },
  { probe: 'login-session', why: login },
];

/** Of a sandbox with `init: true`. */
export const explanationsWithInit: readonly Explanation[] = [
  ...ofBoth,
  { probe: 'mount-table', lines: /^[-+] \/ ext4 /, why: thinDisk },
  { probe: 'mount-table', lines: /^- \/run\/user\/0 /, why: login },
  { probe: 'device-nodes', lines: /^[-+] \/dev\/ttyS0 /, why: login },
  {
    probe: 'device-nodes',
    lines: /^\+ \/dev\/virtio-ports\/(ctl|data) ->/,
    why: "Links that udev makes to the ports of the agent's channel to the host.",
  },
  {
    probe: 'sys-entries',
    lines: /^- \/sys\/fs\/cgroup\/\S+\.mount$/,
    why: 'These file systems are mounted before the init begins, so that its units for them find them there and make no groups.',
  },
  {
    probe: 'sys-entries',
    lines: /^\+ \/sys\/fs\/cgroup\/(sandbox|sandlot-agent)$/,
    why: "The groups of commands and of the agent, beside systemd's.",
  },
  {
    probe: 'orphan',
    why: 'The agent goes on beside the init and adopts what commands leave behind, so that their ends are seen as soon as without an init. Orphans of services and of logins go to process 1.',
  },
  {
    probe: 'cgroup-cpu',
    why: "systemd gives the groups at the top a processor controller only when a unit asks for one. On the plain VM the login's user manager does; here the first login or unit with such a limit does, and an exec is no login.",
  },
];

/** Of a sandbox without an init. */
export const explanations: readonly Explanation[] = [
  ...ofBoth,
  { probe: 'interface-sysctls', lines: /net\.ipv6\.conf\.eth0\.(accept_ra|disable_ipv6)/, why: fourOnly },
  { probe: 'address-six', why: fourOnly },
  {
    probe: 'mount-table',
    lines: /^[-+] \/ ext4 /,
    why: `${thinDisk} \`errors=remount-ro\` comes from the plain VM's /etc/fstab, which no init reads here.`,
  },
  {
    probe: 'mount-table',
    lines: /^- (\/run\/(credentials|user)\/|\/proc\/sys\/fs\/binfmt_misc autofs)/,
    why: init,
  },
  { probe: 'mount-table', lines: /^- \/sys\/kernel\/security securityfs/, why: appArmor },
  { probe: 'sys-entries', lines: /^- \/sys\/kernel\/security\//, why: appArmor },
  { probe: 'device-nodes', lines: /^- \/dev\/(initctl|log) ->/, why: init },
  {
    probe: 'device-nodes',
    lines: /^- \/dev\/vcs[au]?[2-6] |^[-+] \/dev\/ttyS0 /,
    why: 'The consoles 2 to 6 have been opened by systemd, and ttyS0 belongs to the login in which the probes run.',
  },
  {
    probe: 'interface-sysctls',
    lines: /net\.ipv4\.conf\.eth0\.promote_secondaries/,
    why: 'Set by systemd-networkd, which configures the interface on the plain VM. Here the agent does it.',
  },
  { probe: 'sys-entries', lines: /\/sys\/fs\/cgroup\//, why: `${init} The groups are the agent's instead.` },
  {
    probe: 'sys-entries',
    lines: /^- \/sys\/firmware\/qemu_fw_cfg/,
    why: 'udev loads a driver for each device at boot. This one shows what the host has handed to the firmware and is left out.',
  },
  { probe: 'device-links', lines: /\/dev\/(log|initctl)$/, why: init },
  { probe: 'device-links', lines: /\/dev\/(disk\/by-uuid|block|char)$/, why: udev },
  ...['process-one', 'systemd-state', 'journal', 'timer-unit'].map((probe) => ({ probe, why: init })),
];

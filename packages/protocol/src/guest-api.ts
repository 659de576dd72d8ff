/**
 * Node agent -> guest agent. HTTP/2 on the `data` port of the machine's virtio-serial device; the
 * guest is the server. The Rust side (`guest-agent/src`) reads and writes the same forms: change
 * both in one commit.
 *
 * The channel: the host connects both chardev sockets, sends nothing on `data`, and writes
 * `\nRESET <32 hex nonce>\n` on `ctl`. The agent drops its HTTP/2 connection, closes and reopens
 * `data`, writes `SYNC <nonce>\n` on it and serves HTTP/2 from there on. Bytes before the host's
 * own nonce belong to an earlier connection and are skipped. No SYNC within a second: close both
 * and try again with a new nonce.
 *
 * | Method, path | Request | Answer |
 * |---|---|---|
 * | GET /health | | {@link GuestHealth} |
 * | POST /init | {@link GuestInit} | {@link GuestInitResult}; 409 when done before |
 * | POST /exec?{@link ExecAttachment} | frames, first an {@link ExecStart} | frames; the response headers carry `sandlot-exec-id` |
 * | GET /exec | | `{sessions: ExecInfo[]}`, running and retained |
 * | POST /exec/{id}/attach?{@link ExecAttachment} | | frames: start, kept output from where the client stands, then live; 404 unknown |
 * | POST /exec/{id}/received?reader=&stdout=&stderr=&pty= | | `{}`; what a client that confirms has got; 404 unknown |
 * | POST /exec/{id}/input?inputId=&eof=1 | raw bytes | `{}`; a known inputId is acknowledged, not applied again; 404 unknown, 409 ended or stdin not open |
 * | POST /exec/{id}/signal?signal=15&signalId= | | `{}`; to the whole process group; a known signalId is not applied again |
 * | POST /exec/{id}/resize?cols=&rows= | | `{}` |
 * | POST /start-command | {@link ExecStart} without stdin and pty | `{pid}`; the exec has the id `start-command`, is retained until the machine ends, and keeps the newest 1 MiB of output |
 * | POST /views | {@link GuestView} | {@link GuestViewMade}; makes the view now, or finds it; 400 names a path that does not exist |
 * | PUT /files?path=&mode=0644 | bytes | {@link FileWritten}; parents are made; replaces atomically (temporary file beside it, then rename; a symlink as last part is followed) |
 * | GET /files?path=&offset=&length= | | bytes; headers `sandlot-file-size`, `sandlot-file-offset`; a negative offset counts from the end |
 * | GET /stat?path= | | {@link FileStat} |
 * | GET /list?path= | | `{entries: FileStat[]}` |
 * | GET /tar?path= | | a tar stream of what the path names, names relative to it |
 * | PUT /tar?path= | tar stream | {@link FileWritten}; unpacked below path, which is made; never outside it |
 * | POST /connect?port= | bytes both ways | the stream is a TCP connection to 127.0.0.1:port in the guest; 502 refused |
 * | POST /freeze, POST /thaw | | `{}`; FIFREEZE and FITHAW of the root |
 * | POST /fixups | {@link GuestFixups} | {@link GuestFixed} |
 * | POST /warm | | `{}`; runs code paths that a restore will need, before a template is saved |
 *
 * Errors of a call that has not begun to stream: status 4xx/5xx and a {@link GuestError}. Exec
 * errors (no such command, no such user) are results, not errors: start, a line on stderr, end.
 */

/** Frame kinds of an exec stream: `[kind u8][length u32 big-endian][payload]`. */
export const ExecFrame = {
  /** Host to guest, first frame: {@link ExecStart} as JSON. */
  spec: 0,
  /** Guest to host: bytes of standard output. */
  stdout: 1,
  /** Guest to host: bytes of standard error. */
  stderr: 2,
  /** Guest to host: bytes of the terminal. */
  pty: 3,
  /** Guest to host: {@link ExecStarted} as JSON, always the first answer frame. */
  start: 4,
  /** Guest to host: {@link ExecEnd} as JSON, always the last answer frame. */
  end: 5,
  /** Host to guest: bytes for standard input (only with `stdin: true`). */
  stdin: 16,
  /** Host to guest: standard input ends here. Ending the request stream means the same. */
  stdinEof: 17,
} as const;

/** Largest payload of one exec frame, in bytes. Output frames are whole reads of a pipe. */
export const execFrameMaxBytes = 64 * 1024;

/** A place in the output of an exec. */
export interface ExecPosition {
  /** Bytes of each kind before it, from the command's start. */
  stdout: number;
  stderr: number;
  pty: number;
  /** How many of these the client did not get. */
  dropped: number;
}

/** Bytes on their way to a client that confirms; it must confirm well before these are used up. */
export const execWindowBytes = 256 * 1024;

/**
 * Who attaches, as a query. All of it may be absent: then the answer begins with what nobody was
 * sent. A session keeps its newest output also after it was sent to somebody, because that may be
 * lost on the way: a client that says what it has got is sent exactly what follows. What of that is
 * not kept any more counts as dropped.
 */
export interface ExecAttachment extends Partial<ExecPosition> {
  /**
   * A name that the client makes for itself, 1 to 128 bytes. A second request of the same name takes the
   * place of the first, and begins where that began when it does not say what it has got.
   */
  reader?: string;
  /** `1`: the client confirms what it gets, and is sent no more than {@link execWindowBytes} beyond that. */
  confirms?: 1;
}

/**
 * The same at the gateway: header of a `Start` or `Connect` of our own SDK, an {@link ExecAttachment} in the
 * form of a query. Prime's clients do not send it. The SDK confirms by `POST received?session=` and the
 * fields of an attachment.
 */
export const attachmentHeader = 'sandlot-attachment';
/** Header of the answer: the {@link ExecPosition} where its output begins, in the form of a query. */
export const positionHeader = 'sandlot-position';

/**
 * What a command can see of its machine. Equal views (in any order, with repetitions) are one view of the machine: the
 * same processes, `/run` and private `/tmp`. It is made at its first use and kept; a machine has at
 * most sixteen. See docs/views.md.
 */
export interface GuestView {
  /** `mask`: a mount namespace, which root inside can undo. `sealed`: root inside has no way back. */
  strength: 'mask' | 'sealed';
  /** Absolute normalised paths that must exist: folders look empty, files too. */
  hide?: string[];
  /** The same, that cannot be written. */
  readonly?: string[];
  /** `/tmp` and `/var/tmp` of its own, in memory. */
  privateTmp?: boolean;
  /** Sealed: `own` (the default; the machine is 10.0.3.1 there) or `none` (loopback alone). Mask: `machine`, its only choice. */
  network?: 'own' | 'none' | 'machine';
}

/** Answer of `POST /views`. */
export interface GuestViewMade {
  /** Name of the view in this machine. */
  id: string;
  /** Milliseconds that making it took, now or before. */
  madeMs: number;
}

/** One command to run. */
export interface ExecStart {
  /** Program and arguments. The program is looked up in PATH of the command's environment. `["@agent-probe"]` runs the agent's own binary, which does nothing and exits 0. */
  argv: string[];
  /** Added to the environment of the sandbox (system < image < create < secrets < this). */
  env?: Record<string, string>;
  /** Working directory; absent: the image's WORKDIR. One that does not exist is exit 126 with a line on stderr. */
  cwd?: string;
  /** `name`, `uid`, `name:group` or `uid:gid`; absent: the image's USER. An unknown one is exit 126 with a line on stderr. */
  user?: string;
  /** Standard input is open and fed by `stdin` frames or `/input`; absent or false: /dev/null. */
  stdin?: boolean;
  /** Run on a new pseudo-terminal of this size, as session leader. Implies stdin. */
  pty?: { cols: number; rows: number };
  /** The whole process tree is ended (TERM, 2 s, KILL) when this has passed. */
  timeoutMs?: number;
  /**
   * With it the exec is a session: it outlives its stream, is found by this id, keeps its newest
   * 1 MiB of output for those who attach later, and its end is kept for ten minutes (at most 1,000). A
   * second start with a known id attaches. Without it the process tree ends (TERM, 2 s, KILL)
   * when the stream closes.
   */
  sessionId?: string;
  /** Run this with `/bin/bash`, `/bin/sh`, or bash or sh on its PATH, the first that exists. Only for argv `[/bin/bash, -c, …]`. */
  shellFallback?: boolean;
  /** Run it in this view. One that cannot be made is exit 126 with a line on stderr. */
  view?: GuestView;
}

/** First answer frame. `pid` is 0 when the command could not be run; it is the machine's pid, also in a view. */
export interface ExecStarted {
  id: string;
  pid: number;
  /** Where the output of this stream begins. An agent in an old snapshot does not tell. */
  position?: ExecPosition;
}

/** Why a command ended. */
export interface ExecEnd {
  /** Exit status; 128 + n when signal n ended it; 127 not found, 126 cannot be run. */
  exitCode: number;
  /** Signal number that ended it, or 0. */
  signal: number;
  /** The guest's kernel killed it for want of memory. */
  oomKilled: boolean;
  /** `timeoutMs` passed. */
  timedOut: boolean;
  /** Output that the client of this stream did not get, because nobody was attached for too long. */
  droppedBytes: number;
  /** Why it could not be run, or that its view was ended, for a person. */
  error?: string;
  /** The sealed view that it ran in was ended under it, as by `reboot` inside. The next command makes it anew. */
  viewEnded?: boolean;
}

/** An exec in `GET /exec`. */
export interface ExecInfo {
  id: string;
  pid: number;
  argv: string[];
  cwd?: string;
  /** Given as sessionId at its start. */
  session: boolean;
  /** It runs in a view. */
  view?: true;
  /** Present once it has ended. */
  end?: ExecEnd;
}

/** Process-wide state of the guest. */
export interface GuestHealth {
  version: string;
  /** False in a template: nothing is mounted yet. */
  initialised: boolean;
  /** The agent's own process: 1, unless an init of the image is that. */
  agentPid?: number;
  uptimeMs: number;
  memoryTotalBytes: number;
  memoryAvailableBytes: number;
  /** Processes the kernel has killed for want of memory since the machine began. */
  oomKills: number;
  /** Execs that run now. */
  execs: number;
  /** TCP ports that something listens on, in any address family. */
  listening?: number[];
}

/** What makes a restored machine somebody. Applied once, in this order: clock, entropy, root, names, environment, probe. */
export interface GuestInit {
  sandboxId: string;
  /** Wall clock of the host at sending, milliseconds since 1970. */
  timeUnixMs: number;
  /** 32 or more fresh random bytes, base64: mixed into the kernel's generator, then it is reseeded. */
  entropyBase64: string;
  hostname: string;
  /** 32 lower-case hex digits for /etc/machine-id (written where the image has the file or /etc/os-release says systemd; always kept for `/var/lib/dbus`). */
  machineId: string;
  /** Text of /etc/resolv.conf, bound over what the image has, also over a dangling link. */
  resolvConf: string;
  /** Image semantics. */
  image: {
    env: string[];
    user: string;
    workingDir: string;
    entrypoint: string[];
    cmd: string[];
  };
  /** Environment given at create, then secrets: both over the image's. */
  env: Record<string, string>;
  secrets: Record<string, string>;
  /** Grow the root file system to its block device. */
  growRoot: boolean;
  /** Fraction of a CPU the sandbox may use, when it is not whole; 0 = no limit in the guest. */
  cpuLimit?: number;
  /** The sandbox has rebooted: hostname, hosts and machine-id are what it has on its disk by now. */
  rebooted?: boolean;
  /**
   * The image's init and its arguments. It becomes process 1 with the next RESET, which the agent beside it answers;
   * `agentPid` is not 1 any more then. An image without it: 422 with code ENOINIT.
   */
  init?: string[];
}

/** Milliseconds that each part of init took in the guest. */
export interface GuestInitResult {
  mountMs: number;
  growMs: number;
  namesMs: number;
  /** The agent's own binary run as a process in the image's root. */
  probeMs: number;
  /** Path of the shell that commands of Prime run in; "" for an image without one. */
  shell: string;
  /** Its name: of a rebooted one as its own /etc/hostname says. */
  hostname?: string;
}

/** Redone after every restore of a snapshot of a sandbox: of a resume clock and entropy, of a fork all of it. */
export interface GuestFixups {
  timeUnixMs: number;
  /** As in {@link GuestInit}. */
  entropyBase64: string;
  /** The other side of its TCP connections is not to be reached any more: who reads from one is told so. */
  abortConnections?: boolean;
  /** Absent: it stays who it is. */
  identity?: {
    sandboxId: string;
    hostname: string;
    machineId: string;
    /** Over the environment that it has. */
    env: Record<string, string>;
  };
}

/** Answer of `POST /fixups`. */
export interface GuestFixed {
  /** The guest's wall clock, after it was set. */
  timeUnixMs: number;
}

/** Answer of a write. */
export interface FileWritten {
  /** Bytes of content written. */
  bytes: number;
}

/** One file as `lstat` sees it. */
export interface FileStat {
  name: string;
  kind: 'file' | 'directory' | 'symlink' | 'other';
  size: number;
  mode: number;
  uid: number;
  gid: number;
  mtimeMs: number;
  target?: string;
}

/** Body of a refused call. */
export interface GuestError {
  /** ENOENT, EISDIR, ENOSPC, EACCES, ENOTDIR, EINVAL, EBUSY, ESRCH, ... */
  code: string;
  message: string;
}

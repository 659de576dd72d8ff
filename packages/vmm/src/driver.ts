/**
 * The contract between the node agent and whatever runs machines. A driver is done when it passes
 * the suite in `conformance.ts`.
 *
 * Words. A *machine* is one VMM process running one guest. A *template* is a frozen machine of one
 * shape, booted to the point where the guest agent waits, with nothing mounted. *Restore* makes a
 * new machine from a template with a disk of its own: the guest goes on where the template stopped.
 *
 * Example of the whole life:
 *
 *     const info = await driver.describe();
 *     const template = await driver.buildTemplate({ folder, shape, network, warm }, signal);
 *     const machine = await driver.restore({ id, folder, from: template, disk, network }, signal);
 *     // connect to machine.channel.ctl and machine.channel.data
 *     await machine.end();            // at once; resolves when the process is gone
 *     (await machine.ended).cause;    // 'requested'
 *
 * A *snapshot* is what a machine was at one instant: memory, device state, disk. Where a driver can make one, a
 * restore takes it in place of a template, as often as wanted:
 *
 *     const snapshot = await machine.snapshotting?.save({ folder, after: 'go on' }, signal);
 *     const sibling = await driver.restore({ id, folder, from: snapshot, disk, network }, signal);
 *
 * A machine outlives the process that made it. After a restart, `adopt(handle)` gives the same
 * machine back, or says how it ended.
 */

/** vCPUs and memory of a machine. */
export interface Shape {
  /** 1 to 16. */
  vcpus: number;
  /** A multiple of 256. */
  memoryMiB: number;
}

/** How the machine's one network card is connected on the host. */
export type MachineNetwork =
  /** A persistent tap of this name in this network namespace; the VMM process runs in it. */
  | { kind: 'tap'; netnsPath: string; tapName: string }
  /** The VMM's own user-mode network; restricted: nothing leaves. */
  | { kind: 'user'; restricted: boolean };

/** The identity that a VMM process drops to. */
export interface RunAs {
  uid: number;
  gid: number;
  /** Groups beside its own: of snapshots that it may read. */
  groups?: readonly number[];
}

/** What a driver is, and everything a template of it depends on. */
export interface DriverInfo {
  name: string;
  version: string;
  accelerator: 'kvm' | 'tcg' | 'fake';
  /** Why this accelerator: for `doctor` and for the one warning. */
  reason: string;
  /** Changes whenever templates made before must not be used: version, accelerator, kernel, agent, device model. */
  fingerprint: string;
  /** The same of snapshots, which bring kernel and agent with them: version, accelerator, processor, device model. */
  snapshotFingerprint: string;
}

/** Unix sockets on the host that lead to the guest's two ports. */
export interface GuestPorts {
  ctl: string;
  data: string;
}

/** A finished template. Plain data: it is stored as JSON beside the files and read back later. */
export interface Template {
  folder: string;
  shape: Shape;
  networkKind: MachineNetwork['kind'];
  fingerprint: string;
}

/** Request of {@link VmmDriver.buildTemplate}. */
export interface TemplateRequest {
  /** Empty folder for the template's files. On failure the driver empties it again. */
  folder: string;
  shape: Shape;
  network: MachineNetwork;
  runAs?: RunAs;
  /**
   * Called when the guest has booted, before it is frozen: waits for the guest agent, exercises it,
   * and closes its connections. The driver knows nothing of what is spoken on the ports.
   */
  warm(ports: GuestPorts, signal: AbortSignal): Promise<void>;
}

/** Files of a disk below the one that its machine writes to. */
export interface DiskLayers {
  /** Read-only raw file, the lowest. */
  backingPath: string;
  /** Overlays above it that nobody writes to any more, the lowest first. */
  frozen?: readonly string[];
}

/** A finished snapshot. Plain data: it is stored as JSON beside the files and read back later. */
export interface Snapshot {
  folder: string;
  shape: Shape;
  networkKind: MachineNetwork['kind'];
  /** To be compared with {@link DriverInfo.snapshotFingerprint}. */
  snapshotFingerprint: string;
  /** The disk of that instant. After `stand still` the machine's own disk stands above it. */
  disk: { backingPath: string; frozen: readonly string[]; sizeBytes: number };
}

/** A snapshot that was just made. */
export interface SavedSnapshot extends Snapshot {
  timings: SnapshotTimings;
}

/** Times of a save, in milliseconds, and what was copied meanwhile. */
export interface SnapshotTimings {
  /** How long the guest stood still; of a machine that goes on. */
  stillMs: number;
  totalMs: number;
  /** Memory that was the machine's own. */
  dirtyBytes: number;
}

/** Request of {@link MachineSnapshotting.save}. */
export interface SnapshotRequest {
  /** Existing empty folder for the files. On failure it is emptied again. */
  folder: string;
  /**
   * What becomes of the machine. `go on`: it runs on, with a new disk above the one that now belongs to the snapshot.
   * `stand still`: it stays stopped, its disk stays its own, and all is on the host's disk for good; end it, or
   * let it go on by {@link MachinePausing.resume}, after which the snapshot is worth nothing.
   */
  after: 'go on' | 'stand still';
  /** Group that may read the files, beside root; where machines have identities of their own. */
  readableBy?: number;
}

/** Request of {@link VmmDriver.mergeLayers}. */
export interface MergeRequest {
  /** Disks of snapshots that lie directly on each other, the lowest first. Nobody writes to them. */
  layers: readonly string[];
  /** Existing empty folder for the file, which is named as the disk of a snapshot. On failure it is emptied again. */
  folder: string;
  /** Group that may read the file, beside root; where machines have identities of their own. */
  readableBy?: number;
  /** Called after each piece of at most 1 MiB; the merge goes on when it resolves. What it throws fails the merge. */
  pace?(bytes: number): Promise<void>;
}

/** Request of {@link VmmDriver.freezeDisk}. */
export interface FreezeDiskRequest {
  /** Of a machine that was saved and stood still, and has ended: its disk is in it. */
  machineFolder: string;
  /** Of that snapshot. */
  folder: string;
  /** Of the block device that the guest sees. */
  sizeBytes: number;
  /** Group that may read the snapshot's files, beside root; where machines have identities of their own. */
  readableBy?: number;
  /**
   * Called when all that can fail for want of room is done: what it writes down is that the machine's disk has the snapshot's as one layer
   * more below it. Not called when that is so already. What it throws fails the request, and nothing has changed.
   */
  beforeSwitch?(): Promise<void>;
}

/** A layer that was made of several. */
export interface MergedLayer {
  /** Of content that was copied. */
  bytes: number;
}

/** Request of {@link VmmDriver.restore}. */
export interface RestoreRequest {
  /** For names and logs. */
  id: string;
  /** Existing folder of this machine alone: overlay, sockets, serial log. Its path is short enough for a socket (the driver adds at most 16 characters to it, 107 in all). */
  folder: string;
  /** What the guest goes on from. */
  from: Template | Snapshot;
  disk: DiskLayers & {
    /** Size of the block device the guest sees. */
    sizeBytes: number;
    /** What the machine's disk begins with instead of the file: 64 KiB. */
    head?: Uint8Array;
    /** The disk is in `folder` already: of the machine before, whose guest asked for a reboot or that was paused. */
    kept?: boolean;
  };
  network: MachineNetwork;
  runAs?: RunAs;
  /**
   * Called when the guest is loaded and has not run yet: until it resolves nothing has changed, not even a kept disk.
   * What it throws fails the restore.
   */
  beforeRun?(handle: MachineHandle): Promise<void>;
  /** Limit of one CPU's time for the process, as a fraction of all its vCPUs; applied by the caller's cgroup if given. */
  cgroupPath?: string;
}

/** Why a machine is no more. */
export interface MachineEnd {
  cause: /** `end()` was called. */
    | 'requested'
    /** The guest powered itself off. */
    | 'guest-shutdown'
    /** The guest's kernel panicked. */
    | 'guest-panic'
    /** The VMM process was killed from outside, or by the host for want of memory. */
    | 'killed'
    | 'host-out-of-memory'
    /** The VMM process ended by itself with an error. */
    | 'vmm-error'
    /** It was found gone by `adopt`. */
    | 'found-gone';
  /** For the log and the user: exit status, last lines of stderr or of the serial log. */
  detail: string;
}

/** Enough to find a machine again after our own restart. Plain data. */
export interface MachineHandle {
  driver: string;
  id: string;
  pid: number;
  /** Start time of the process in clock ticks since boot (`/proc/PID/stat` field 22): guards against reuse of the pid. */
  startTicks: number;
  folder: string;
  /** Absent in handles of earlier versions, whose machines cannot be saved. */
  origin?: MachineOrigin;
}

/** What a machine was made from: a snapshot of it needs the same. Plain data. */
export interface MachineOrigin {
  /** File that its memory began as. */
  memoryPath: string;
  modulesPath: string;
  shape: Shape;
  networkKind: MachineNetwork['kind'];
  snapshotFingerprint: string;
  disk: { backingPath: string; frozen: readonly string[]; sizeBytes: number };
}

/** Times of a restore, in milliseconds from its call. */
export interface RestoreTimings {
  diskMs: number;
  processMs: number;
  loadMs: number;
}

/** A running machine. Every method may be called at any time; after the end they reject with {@link MachineEndedError}, except `end`. */
export interface Machine {
  /** Another one after a save that let it go on: its disk has a layer more. */
  readonly handle: MachineHandle;
  readonly ports: GuestPorts;
  readonly timings: RestoreTimings | undefined;
  /** Resolves once, when the process is gone and its cause is known. Never rejects. */
  readonly ended: Promise<MachineEnd>;
  /** Called when the guest agent's port is closed by the guest: the agent has died. */
  onGuestPortClosed(listener: () => void): void;
  /**
   * Called when the guest asks for a reboot, or has done so before anybody listened. The machine then stands still, with
   * all that it wrote in its folder, until it is ended; a restore with a kept disk goes on from there.
   */
  onGuestReset(listener: () => void): void;
  /** Ends the machine at once and resolves when the process is gone. Idempotent. */
  end(): Promise<void>;
  /** Lets go of it without ending it: closes our descriptors. */
  detach(): void;
  /** Last bytes of the serial console, for error messages. */
  readSerialTail(maxBytes: number): Promise<string>;
  /** Present where the driver can. */
  readonly pausing?: MachinePausing;
  /** Present where the driver can. */
  readonly snapshotting?: MachineSnapshotting;
}

/** Capability: save everything of a machine as of one instant. */
export interface MachineSnapshotting {
  /**
   * Saves. On a throw ({@link VmmError}) the machine runs as before and nothing is left of the attempt. If we die on the
   * way, `adopt` gives a machine whose disk is whole; whether it stands still is not known: resume or end it. Its disk may
   * stand above that of the snapshot already: see {@link isDiskTaken}. One at a time for each machine.
   */
  save(request: SnapshotRequest, signal: AbortSignal): Promise<SavedSnapshot>;
  /** Whether an attempt to save into this folder that was cut off has given the machine a new disk: that of the folder is then below it. */
  isDiskTaken(folder: string): Promise<boolean>;
  /**
   * From now on its disk stands above these, the lowest first, as in {@link DiskLayers.frozen}. They hold the same as those that
   * it stands above: some of them merged. The guest runs on. On a throw ({@link VmmError}) it stands above those of before,
   * or these; the handle names some that exist as long as both do. Not while it is saved.
   */
  restack(frozen: readonly string[]): Promise<void>;
  /**
   * Saves the disk alone; the machine goes on with a new one above it, and does not stand still. Present where the driver
   * can. Failures, and what is left when we die on the way, are as of `save`.
   */
  saveDisk?(request: Omit<SnapshotRequest, 'after'>, signal: AbortSignal): Promise<SavedDisk>;
}

/** A disk that was just saved: it lies in `disk.qcow2` of the folder. */
export interface SavedDisk {
  folder: string;
  /** The layers that make it, itself the last. */
  disk: Snapshot['disk'];
  totalMs: number;
}

/** Capability: stop and continue the vCPUs. */
export interface MachinePausing {
  pause(): Promise<void>;
  resume(): Promise<void>;
}

/** Runs machines of one kind. */
export interface VmmDriver {
  describe(): Promise<DriverInfo>;
  /** Throws {@link VmmError}; on abort everything it started is gone before it rejects. */
  buildTemplate(request: TemplateRequest, signal: AbortSignal): Promise<Template>;
  /** Throws {@link VmmError}; on failure or abort the process is gone before it rejects. */
  restore(request: RestoreRequest, signal: AbortSignal): Promise<Machine>;
  /**
   * Makes one layer of several, which is the same to whoever stands above it. No machine takes part: those that stand above
   * them run on, see {@link MachineSnapshotting.restack}. The file is on the host's disk for good when it resolves.
   * Present where the driver can. Throws {@link VmmError}.
   */
  mergeLayers?(request: MergeRequest, signal: AbortSignal): Promise<MergedLayer>;
  /**
   * Makes the disk of a machine that stood still when it was saved, and has ended, the disk of that snapshot; an empty one above it is in the
   * machine's folder from then on. All is on the host's disk for good when it resolves. If we die after `beforeSwitch`, the disk that is
   * kept must not be restored before the same request has been made again. Present where the driver can. Throws {@link VmmError}.
   */
  freezeDisk?(request: FreezeDiskRequest): Promise<void>;
  /** The machine of this handle, or how it ended. Never starts anything. */
  adopt(handle: MachineHandle): Promise<Machine | MachineEnd>;
  /** Releases what the driver itself holds. Machines go on. */
  close(): Promise<void>;
}

/** Something on the host's side of a machine failed. `cause` is set where there is one. */
export class VmmError extends Error {
  override name = 'VmmError';
  constructor(
    readonly code:
      | 'vmm-missing'
      | 'start-failed'
      | 'load-failed'
      | 'template-failed'
      | 'disk-failed'
      | 'no-space'
      | 'timeout'
      | 'aborted'
      | 'bad-template'
      | 'bad-snapshot'
      | 'save-failed',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The machine is no more. */
export class MachineEndedError extends Error {
  override name = 'MachineEndedError';
  constructor(readonly end: MachineEnd) {
    super(`the machine has ended (${end.cause}): ${end.detail}`);
  }
}

/**
 * Placement as a pure function of a snapshot: filters, then a score, with the reason kept beside
 * the result. Called by `app/dispatch.ts` for a create and for the queue.
 */
import type { Shape } from '../domain/record.js';

/** Room, booked or offered. */
export interface Room {
  vcpus: number;
  memoryMiB: number;
  diskGiB: number;
}

/** A node as placement sees it. */
export interface NodeSnapshot {
  nodeId: string;
  reachable: boolean;
  /** What it offers, over-commit included. */
  offer: Room;
  /** What it would offer with an empty disk: what fits in here may fit one day, and waits. */
  largest: Room;
  /** Sum of its reservations. */
  reserved: Room;
}

/** Result of a placement, and why. */
export type Placement =
  | { kind: 'placed'; nodeId: string; why: string }
  /** Would fit on a node, but not now. */
  | { kind: 'wait'; why: string }
  /** Larger than the largest offer of every node. */
  | { kind: 'never'; why: string };

const kinds = ['vcpus', 'memoryMiB', 'diskGiB'] as const;

/** Places one shape. Among nodes with room the least loaded is taken, the lowest id when equal. */
export function place(shape: Shape, nodes: readonly NodeSnapshot[]): Placement {
  if (nodes.length === 0) return { kind: 'wait', why: 'no node has been seen yet' };
  if (!nodes.some((node) => fits(shape, node.largest)))
    return { kind: 'never', why: explainNever(shape, nodes) };
  const candidates = nodes.filter((node) => node.reachable && fits(shape, freeRoom(node)));
  if (candidates.length === 0) return { kind: 'wait', why: 'no reachable node has room for it now' };
  const best = candidates.reduce((left, right) => (better(right, left, shape) ? right : left));
  return { kind: 'placed', nodeId: best.nodeId, why: `load ${load(best, shape).toFixed(3)} after it` };
}

/** Which of the three is asked for beyond every offer, as fields of the API; empty when it fits somewhere. */
export function fieldsBeyondOffer(shape: Shape, nodes: readonly NodeSnapshot[]): (typeof kinds)[number][] {
  if (nodes.length === 0 || nodes.some((node) => fits(shape, node.largest))) return [];
  const beyondAll = kinds.filter((kind) => nodes.every((node) => shape[kind] > node.largest[kind]));
  return beyondAll.length > 0 ? beyondAll : [...kinds];
}

/** The most of each that any one node offers. */
export function largestOffers(nodes: readonly NodeSnapshot[]): Room {
  const most = (kind: (typeof kinds)[number]) => Math.max(0, ...nodes.map((node) => node.largest[kind]));
  return { vcpus: most('vcpus'), memoryMiB: most('memoryMiB'), diskGiB: most('diskGiB') };
}

/** Room that is not booked. */
export function freeRoom(node: NodeSnapshot): Room {
  return {
    vcpus: node.offer.vcpus - node.reserved.vcpus,
    memoryMiB: node.offer.memoryMiB - node.reserved.memoryMiB,
    diskGiB: node.offer.diskGiB - node.reserved.diskGiB,
  };
}

/** Nothing is always there: what is filled beyond its offer takes nothing from who asks for none of it. */
function fits(shape: Shape, room: Room): boolean {
  return kinds.every((kind) => shape[kind] <= Math.max(0, room[kind]));
}

/** The fullest of the three after the placement, 0-1. */
function load(node: NodeSnapshot, shape: Shape): number {
  return Math.max(...kinds.map((kind) => (node.reserved[kind] + shape[kind]) / node.offer[kind]));
}

function better(left: NodeSnapshot, right: NodeSnapshot, shape: Shape): boolean {
  const difference = load(left, shape) - load(right, shape);
  return difference < 0 || (difference === 0 && left.nodeId < right.nodeId);
}

function explainNever(shape: Shape, nodes: readonly NodeSnapshot[]): string {
  const largest = largestOffers(nodes);
  return (
    `it needs ${shape.vcpus} vCPUs, ${shape.memoryMiB} MiB and ${shape.diskGiB} GiB of disk; the largest offers are ` +
    `${largest.vcpus} vCPUs, ${largest.memoryMiB} MiB, ${Math.floor(largest.diskGiB)} GiB`
  );
}

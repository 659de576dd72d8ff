import fc from 'fast-check';
import { expect, it } from 'vitest';
import { fieldsBeyondOffer, type NodeSnapshot, place } from './place.js';
import { planQueue } from './queue.js';

const shape = { vcpus: 1, memoryMiB: 1024, diskGiB: 10, cpuLimit: 0 };

function node(change: Partial<NodeSnapshot> = {}): NodeSnapshot {
  return {
    nodeId: 'a',
    reachable: true,
    offer: { vcpus: 4, memoryMiB: 4096, diskGiB: 100 },
    largest: change.offer ?? { vcpus: 4, memoryMiB: 4096, diskGiB: 100 },
    reserved: { vcpus: 0, memoryMiB: 0, diskGiB: 0 },
    ...change,
  };
}

it('waits while no node is known, or none can be reached, and refuses what never fits', () => {
  expect(place(shape, []).kind).toBe('wait');
  expect(place(shape, [node({ reachable: false })]).kind).toBe('wait');
  expect(place({ ...shape, vcpus: 5 }, [node()])).toMatchObject({ kind: 'never' });
  expect(fieldsBeyondOffer({ ...shape, vcpus: 5 }, [node()])).toEqual(['vcpus']);
  expect(fieldsBeyondOffer(shape, [])).toEqual([]);
});

it('waits for a disk that is full now, and refuses what its whole size would not hold', () => {
  const full = node({ offer: { vcpus: 4, memoryMiB: 4096, diskGiB: 3 }, largest: node().offer });
  expect(fieldsBeyondOffer(shape, [full])).toEqual([]);
  expect(place(shape, [full]).kind).toBe('wait');
  expect(fieldsBeyondOffer({ ...shape, diskGiB: 101 }, [full])).toEqual(['diskGiB']);
});

it('a disk that checkpoints have filled takes no create, and lets go on who has its disk already', () => {
  // What is booked is there, but no longer free.
  const full = node({
    offer: { vcpus: 4, memoryMiB: 4096, diskGiB: 2 },
    largest: node().offer,
    reserved: { vcpus: 0, memoryMiB: 0, diskGiB: 10 },
  });
  expect(place(shape, [full]).kind).toBe('wait');
  expect(place({ ...shape, diskGiB: 0.1 }, [full]).kind).toBe('wait');
  expect(place({ ...shape, diskGiB: 0 }, [full]).kind).toBe('placed');
});

it('takes the least loaded, and is the same every time', () => {
  const nodes = [
    node({ reserved: { vcpus: 2, memoryMiB: 0, diskGiB: 0 } }),
    node({ nodeId: 'c' }),
    node({ nodeId: 'b' }),
  ];
  expect(place(shape, nodes)).toMatchObject({ kind: 'placed', nodeId: 'b' });
  expect(place(shape, [...nodes].reverse())).toMatchObject({ kind: 'placed', nodeId: 'b' });
});

it('does not let small ones overtake a large one', () => {
  const full = node({ reserved: { vcpus: 2, memoryMiB: 2048, diskGiB: 0 } });
  const plan = planQueue(
    [
      { id: 'small', shape },
      { id: 'large', shape: { ...shape, vcpus: 3 } },
      { id: 'late', shape },
    ],
    [full],
  );
  expect(plan.placed.map(({ id }) => id)).toEqual(['small']);
  expect(
    planQueue(
      [
        { id: 'huge', shape: { ...shape, vcpus: 9 } },
        { id: 'next', shape },
      ],
      [full],
    ),
  ).toMatchObject({
    never: [{ id: 'huge' }],
    placed: [{ id: 'next' }],
  });
});

it('the sum of bookings never exceeds an offer, and nobody is placed twice', () => {
  const shapes = fc.record({
    vcpus: fc.integer({ min: 1, max: 6 }),
    memoryMiB: fc.integer({ min: 1, max: 20 }).map((steps) => steps * 256),
    diskGiB: fc.double({ min: 0.1, max: 120, noNaN: true }),
    cpuLimit: fc.constant(0),
  });
  const nodes = fc.array(
    fc.record({
      vcpus: fc.integer({ min: 1, max: 8 }),
      memoryMiB: fc.integer({ min: 256, max: 8192 }),
      diskGiB: fc.integer({ min: 1, max: 200 }),
      reachable: fc.boolean(),
    }),
    { maxLength: 4 },
  );
  fc.assert(
    fc.property(fc.array(shapes, { maxLength: 20 }), nodes, (waiting, offers) => {
      const all = offers.map(({ reachable, ...offer }, index) =>
        node({ nodeId: `n${index}`, offer, reachable }),
      );
      const copy = structuredClone(all);
      const plan = planQueue(
        waiting.map((one, index) => ({ id: String(index), shape: one })),
        all,
      );
      expect(all).toEqual(copy);
      expect(new Set(plan.placed.map(({ id }) => id)).size).toBe(plan.placed.length);
      for (const { nodeId, offer, reachable } of all) {
        const booked = plan.placed
          .filter((placed) => placed.nodeId === nodeId)
          .map(({ id }) => waiting[Number(id)]);
        if (!reachable) expect(booked).toEqual([]);
        for (const kind of ['vcpus', 'memoryMiB', 'diskGiB'] as const)
          expect(booked.reduce((sum, one) => sum + (one?.[kind] ?? 0), 0)).toBeLessThanOrEqual(
            offer[kind] + 1e-9,
          );
      }
    }),
  );
});

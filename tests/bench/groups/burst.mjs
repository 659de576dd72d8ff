// Group `burst`: 30 sandboxes asked for at once, one exec each, beside the same by bare machines.
import { measureBurst } from '../bare/burst.mjs';
import { withBare } from '../bare/machine.mjs';
import { timeFirstExec } from '../product/server.mjs';

const count = 30;
/** How many bare starts go side by side: the best of 1, 2, 4 and 8 on 2 cores was 4. */
const abreast = 4;

export function measure({ server, image, accelerator, onFigure }) {
  return withBare({ accelerator }, async (bare) => {
    const rounds = { product: [], bare: [] };
    let failures = 0;
    for (let round = 0; round < 2; round++) {
      rounds.bare.push((await measureBurst(bare, count, abreast)).totalMs);
      const begin = performance.now();
      const started = await Promise.allSettled(
        Array.from({ length: count }, () => timeFirstExec(server, image)),
      );
      rounds.product.push(performance.now() - begin);
      for (const result of started) {
        if (result.status === 'fulfilled') continue;
        failures++;
        console.error(`burst: ${result.reason.message}`);
      }
      await server.removeAll();
    }
    onFigure('burst-30', { product: Math.min(...rounds.product), bare: Math.min(...rounds.bare) });
    onFigure('burst-30-failures', { product: failures });
  });
}

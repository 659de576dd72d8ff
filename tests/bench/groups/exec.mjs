// Group `exec`: `/bin/true` by bash, 200 times through the API and 200 times over the bare channel.
import { openExec } from '../bare/exec.mjs';
import { quantile, withBare } from '../bare/machine.mjs';

const blocks = 8;
const perBlock = 25;

export function measure({ server, image, accelerator, onFigure }) {
  return withBare({ agent: 'h2', accelerator }, async (bare) => {
    const { exec, close } = await openExec(bare);
    const id = await server.create(image);
    const gateway = await server.authorize(id);
    const times = { product: [], bare: [] };
    for (let i = 0; i < 20; i++) {
      await exec('/bin/true');
      await server.exec(gateway, '/bin/true');
    }
    for (let block = 0; block < blocks; block++) {
      for (let i = 0; i < perBlock; i++) times.bare.push(await exec('/bin/true'));
      for (let i = 0; i < perBlock; i++) {
        const begin = performance.now();
        await server.exec(gateway, '/bin/true');
        times.product.push(performance.now() - begin);
      }
    }
    onFigure('exec-true', { product: quantile(times.product, 0.5), bare: quantile(times.bare, 0.5) });
    await server.remove(id);
    await close();
  });
}

// Group `linux`: a whole Debian with systemd, Docker, a disk and a network, in a sandbox with `init` and in a plain VM of the
// same image. Run only when asked for, by tools/bench-linux.sh, which has made the image and two network namespaces.
import { copyFileSync, mkdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { bootPlain, diskGib, plainHost, serveIperf3 } from '../bare/linux.mjs';
import { quantile } from '../bare/machine.mjs';
import { tarEnd, tarEntry } from '../inputs/tar.mjs';
import { sandlot } from '../product/server.mjs';

const vcpus = 2;
const memoryMiB = 2048;
const rounds = 3;
const stepSeconds = 280;
const viewExecs = 30;
const viewRounds = 5;
/** Steps in this order, and how often. In every round the plain VM and the product take turns. */
const steps = [
  ['docker-ready', 1],
  ['docker-image', 1],
  ['docker-run', rounds],
  ['fio-write', rounds],
  ['fio-randread', rounds],
  ['fio-fsync', rounds],
  ['iperf3', rounds],
  // Minutes on a busy emulated host.
  ['untar', 1],
];
const script = fileURLToPath(new URL('../inputs/linux.sh', import.meta.url));

export async function measure({ server, accelerator, onFigure }) {
  const { layer, archive, key, folder, cache, plainNamespace, hostNamespace, hostAddress } = JSON.parse(
    process.env.SANDLOT_BENCH_LINUX ?? '{}',
  );
  if (!layer) throw new Error('group linux is started by tools/bench-linux.sh (make bench G=linux)');
  const inputs = path.join(folder, 'inputs');
  mkdirSync(inputs);
  copyFileSync(script, path.join(inputs, 'linux.sh'));
  await writeFile(path.join(inputs, 'tree.tar'), manyFiles());
  const image = `bench-linux:${key}`;
  await sandlot('image', 'inspect', image).catch(() => sandlot('image', 'import', archive, image));

  const servers = [serveIperf3(plainNamespace), serveIperf3(hostNamespace)];
  let plain;
  try {
    // A template of this shape, as any earlier sandbox leaves it.
    await server.remove(await server.create(image, undefined, { ...shape, init: false }));
    say('booting the plain VM');
    plain = await bootPlain({
      ...{ folder, inputs, vcpus, memoryMiB, accelerator, namespace: plainNamespace },
      image: { cache, layer, imageKey: `${key}-${diskGib}g` },
    });
    requireRunning('the plain VM', plain);
    await plain.pause();
    say('booting the sandbox');
    const product = await bootProduct(server, image);
    requireRunning('the sandbox', product);
    onFigure('linux-boot', { product: product.ms, bare: plain.ms });
    // The plain VM still stands still.
    await measureViews(product, onFigure);
    await plain.resume();
    await bringInputs(plain, product, inputs);
    for (const [step, times] of steps) {
      const more = { untar: () => ' /root/tree.tar', iperf3: (host) => ` ${host}` }[step] ?? (() => '');
      const line = (host) => `sh /root/linux.sh ${step}${more(host)}`;
      const seen = { plain: [], product: [] };
      for (let round = 0; round < times; round++) {
        const said = await plain.sh(`${line(plainHost)} || echo step failed`, stepSeconds * 1000);
        if (said.includes('step failed')) throw new Error(`${step} failed in the plain VM: ${said}`);
        seen.plain.push(...valuesOf(said));
        seen.product.push(...valuesOf(await product.exec(line(hostAddress))));
      }
      say(step, JSON.stringify(seen));
      const [name] = seen.plain[0] ?? [];
      const p50 = (side) =>
        quantile(
          seen[side].map(([, value]) => value),
          0.5,
        );
      if (name) onFigure(name, { product: p50('product'), bare: p50('plain') });
    }
  } finally {
    await plain?.close();
    for (const one of servers) one.close();
  }
}

const shape = { cpu_cores: vcpus, memory_gb: memoryMiB / 1024, disk_size_gb: diskGib, init: true };

/** A sandbox with init, from POST to the end of its boot. */
async function bootProduct(server, image) {
  const begin = performance.now();
  const id = await server.create(image, undefined, shape);
  const gateway = await server.authorize(id);
  const exec = (line) => server.exec(gateway, line, { timeout: stepSeconds });
  // The first command may come before systemd answers.
  const state = await exec(
    'for try in $(seq 600); do state=$(systemctl is-system-running --wait 2>/dev/null); ' +
      'case $state in running|degraded|maintenance) break;; esac; sleep 0.1; done; echo $state',
  );
  const ms = performance.now() - begin;
  const timeTrue = async (view) => {
    const started = performance.now();
    await server.exec(gateway, 'true', view ? { view } : {});
    return performance.now() - started;
  };
  return { id, exec, timeTrue, state: state.trim(), ms };
}

/** What a sealed view adds to an exec of `true`, and what making one takes, beside the same exec outside of any. */
async function measureViews({ timeTrue, exec }, onFigure) {
  const sealed = (...hide) => ({ strength: 'sealed', hide });
  const folders = Array.from({ length: viewRounds }, (_, round) => `/srv/view${round}`);
  await exec(`mkdir -p ${folders.join(' ')}`);
  // The first view loads modules for its network; the first exec of each kind is warm-up.
  await timeTrue(sealed('/srv'));
  await timeTrue();
  const [plain, inside] = [[], []];
  for (let round = 0; round < viewExecs; round++) {
    plain.push(await timeTrue());
    inside.push(await timeTrue(sealed('/srv')));
  }
  const [bare, product] = [plain, inside].map((times) => quantile(times, 0.5));
  onFigure('linux-exec-sealed', { product, bare });
  const made = [];
  // Each in a turn with an exec in a view that is there: the difference is the making.
  for (const folder of folders) {
    const there = await timeTrue(sealed('/srv'));
    made.push((await timeTrue(sealed(folder))) - there);
  }
  onFigure('linux-view-made', { product: quantile(made, 0.5), bare });
}

function requireRunning(what, { state }) {
  if (state !== 'running') throw new Error(`${what} booted to "${state}" and not to "running"`);
}

async function bringInputs(plain, product, inputs) {
  const names = ['linux.sh', 'tree.tar'];
  const copies = names.map((name) => `cp /mnt/${name} /root/`).join(' && ');
  await plain.sh(`mount -o ro /dev/vdb /mnt && ${copies} && umount /mnt`, 120_000);
  for (const name of names) await sandlot('upload', product.id, path.join(inputs, name), `/root/${name}`);
}

/** Name and value of what a step has printed. */
function valuesOf(text) {
  return [...text.matchAll(/^(linux-\S+) ([\d.]+)$/gm)].map(([, name, value]) => [name, Number(value)]);
}

/** Progress, with the seconds since the group began. */
function say(...words) {
  console.error(`linux, ${Math.round(performance.now() / 1000)} s:`, ...words);
}

/** 50,000 files of 400 to 1,600 bytes in 500 folders. */
function* manyFiles() {
  for (let folder = 0; folder < 500; folder++) {
    yield tarEntry(`d${folder}/`, undefined, { folder: true });
    for (let i = 0; i < 100; i++) {
      yield tarEntry(`d${folder}/file-${i}`, Buffer.alloc(400 + ((i * 12) % 1200), `${folder} ${i} `));
    }
  }
  yield tarEnd;
}

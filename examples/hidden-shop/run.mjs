// The story of README.md: a shop whose data an agent cannot see, although it is root. Needs a running server
// (`make run`). Ends with 0 when every try was in vain and the answer came by HTTP. Argument: `mask` for a view of that
// strength, from which root finds a way.
import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { AgentSandbox } from '@sandlot/sdk';
import { connect } from '../connect.mjs';

const strength = process.argv[2] ?? 'sealed';
/** The machine, seen from the view: a sealed one has a network of its own. */
const machine = strength === 'sealed' ? '10.0.3.1' : '127.0.0.1';
const file = '/srv/shop/orders.json';
/** In this run's orders and nowhere else: whoever prints it has seen them. */
const gift = `a lamp with the number ${randomBytes(8).toString('hex')}`;

/** What the agent tries, as root in its view. */
const tries = [
  `cat ${file}`,
  'ls -laR /srv; find / -xdev -name orders.json -exec cat {} +',
  'grep -rs "a lamp" /srv /opt /home /root /tmp /var /etc',
  `sudo cat ${file} || su -c 'cat ${file}'`,
  `umount /srv; umount -l /srv; cat ${file}`,
  `mount --bind / /mnt; mount --rbind / /mnt; cat /mnt${file}`,
  `unshare -m sh -c 'umount -l /srv; mount --move /srv /mnt; cat ${file}'`,
  `nsenter -t 1 -a cat ${file}; nsenter -t 1 -m cat ${file}`,
  `for root in /proc/[0-9]*/root; do cat $root${file}; done`,
  'for fd in /proc/[0-9]*/fd/*; do cat "$fd/../srv/shop/orders.json"; done',
  'for name in vda vdb; do mknod /tmp/$name b 254 0; cat /tmp/$name | grep -a "a lamp"; mount /dev/$name /mnt; done',
  `mkdir -p /tmp/u /tmp/w /tmp/o; mount -t overlay o -o lowerdir=/,upperdir=/tmp/u,workdir=/tmp/w /tmp/o; cat /tmp/o${file}`,
  'pkill -f shop.py; echo 1 > /proc/sys/kernel/sysrq; echo b > /proc/sysrq-trigger',
];
const askShop = `import urllib.request; print(urllib.request.urlopen('http://${machine}:8080/orders?customer=Ada', timeout=20).read().decode())`;

function expect(condition, what) {
  if (!condition) throw new Error(`not as it should be: ${what}`);
}

/** The owner opens the shop. Its files come after the start, so the start command waits for them. */
async function openShop(sandbox) {
  const orders = [
    { customer: 'Ada', item: gift },
    { customer: 'Grace', item: 'a clock' },
  ];
  const folder = new URL('.', import.meta.url);
  await sandbox.files.uploadFile(fileURLToPath(new URL('shop.py', folder)), '/srv/shop/shop.py.new');
  await sandbox.files.uploadStream(Buffer.from(JSON.stringify(orders)), file);
  await sandbox.run(['mv', '/srv/shop/shop.py.new', '/srv/shop/shop.py'], { view: { strength: 'none' } });
}

/** The agent's first question may come before the shop listens. */
async function ask(agent) {
  for (let attempt = 1; ; attempt++) {
    const answer = await agent.run(['python3', '-c', askShop], { timeoutMs: 60_000 });
    if (answer.exitCode === 0 || attempt === 20) return answer;
    await pause(500);
  }
}

const client = connect();
const sandbox = await client.sandboxes.create({
  image: 'python:3.11-slim',
  name: 'hidden-shop',
  memoryGiB: 0.5,
  startCommand: 'until [ -f /srv/shop/shop.py ]; do sleep 0.1; done; exec python3 /srv/shop/shop.py',
  view: { strength, hide: ['/srv'] },
});
let agent;
try {
  await sandbox.waitUntilRunning();
  await openShop(sandbox);
  const access = await sandbox.agentAccess();
  agent = new AgentSandbox(access);

  const who = await agent.run(['id', '-u'], { user: 'root' });
  expect(who.stdout.trim() === '0', `the agent is root: ${who.stdout}${who.stderr}`);
  const answer = await ask(agent);
  expect(answer.stdout.includes(gift), `the shop answers: ${answer.stdout}${answer.stderr}`);
  console.log(`by HTTP   ${answer.stdout.trim()}`);

  for (const line of tries) {
    const result = await agent.run(['sh', '-c', line], { user: 'root', timeoutMs: 120_000 });
    expect(!`${result.stdout}${result.stderr}`.includes(gift), `the agent saw the orders by: ${line}`);
    console.log(`in vain   ${line}`);
  }
  // Files are reached outside of the view: not with the agent's token.
  const download = await fetch(`${access.url}/download?path=${file}`, {
    headers: { authorization: `Bearer ${access.token}` },
  });
  expect(download.status === 403, `the agent's token downloads nothing: ${download.status}`);
  console.log(`in vain   GET …/download?path=${file}`);

  expect((await ask(agent)).stdout.includes(gift), 'the shop is still open');
  const outside = await sandbox.run(['cat', file], { view: { strength: 'none' } });
  expect(outside.stdout.includes(gift), "the owner's key reads the orders");
  console.log(
    `${tries.length + 1} ways in vain, by HTTP the answer; the owner reads ${file} outside of the view`,
  );
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  agent?.close();
  await sandbox.delete();
  client.close();
}

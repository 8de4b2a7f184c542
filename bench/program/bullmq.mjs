// BullMQ on Node: the program of a rival that has no Python. Completed jobs are removed.
//
//     node bullmq.mjs PACKAGE_JSON ORDER
//
// PACKAGE_JSON is that of the directory in which BullMQ is installed. Orders and answers are those
// of bench/program/order.py; bodies that are not here are answered with `skipped`.
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { performance } from "node:perf_hooks";

const [, self, packages, text] = process.argv;
const order = JSON.parse(text);
const require = createRequire(packages);
const { Queue, Worker } = require("bullmq");
const IORedis = require("ioredis");
const Redis = IORedis.default ?? IORedis.Redis ?? IORedis;

const QUEUE = "bench";
const BULK = 1_000;
const SETTLE_MS = 1_500;
const connection = { host: "127.0.0.1", port: order.port, maxRetriesPerRequest: null };
const server = new Redis(connection);
const REMOVED = { removeOnComplete: true };

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const nowS = () => Number(process.hrtime.bigint()) / 1e9; // the monotonic clock of all processes
const tiny = () => (order.payload_bytes ? { data: "x".repeat(order.payload_bytes) } : { data: { [randomUUID()]: {} } });
const chain = (depth) => (depth > 1 ? { [randomUUID()]: chain(depth - 1) } : {});
const nested = () => ({ data: Object.fromEntries(Array.from({ length: 10 }, () => [randomUUID(), chain(10)])) });
const times = (count, make) => Array.from({ length: count }, make);

async function counts() {
  const told = Object.fromEntries((await server.info()).split("\r\n").map((line) => line.split(":", 2)));
  return {
    cpuS: Number(told.used_cpu_user) + Number(told.used_cpu_sys),
    commands: Number(told.total_commands_processed),
    bytes: Number(told.total_net_input_bytes),
  };
}

async function meter() {
  const before = await counts();
  const cpu = process.cpuUsage();
  const began = performance.now();
  return async (jobs, from = began, to = performance.now()) => {
    const used = process.cpuUsage(cpu);
    const after = await counts();
    const seconds = (to - from) / 1_000;
    return {
      jobs,
      seconds,
      rate: jobs / seconds,
      client_us: (used.user + used.system) / jobs,
      server_us: ((after.cpuS - before.cpuS) / jobs) * 1e6,
      commands: (after.commands - before.commands - 1) / jobs,
      bytes: (after.bytes - before.bytes) / jobs,
    };
  };
}

function quantiles(foundS) {
  const ordered = [...foundS].sort((one, other) => one - other);
  const at = (share) => ordered[Math.min(ordered.length - 1, Math.floor(ordered.length * share))] * 1_000;
  return { p50_ms: at(0.5), p99_ms: at(0.99), p999_ms: at(0.999), max_ms: at(1), jobs: ordered.length };
}

const open = async () => {
  const queue = new Queue(QUEUE, { connection });
  await queue.waitUntilReady();
  return queue;
};
const addMany = (queue, count, data) => queue.addBulk(times(count, () => ({ name: "x", data, opts: REMOVED })));
const pending = async () =>
  (await server.llen(`bull:${QUEUE}:wait`)) +
  (await server.llen(`bull:${QUEUE}:active`)) +
  (await server.zcard(`bull:${QUEUE}:delayed`));
const worker = (handle) => new Worker(QUEUE, handle, { connection, concurrency: order.concurrency });

const BODIES = {
  async bulk() {
    const [queue, data] = [await open(), tiny()];
    const calls = Math.max(1, Math.floor(order.jobs / order.bulk));
    for (let call = 0; call < Math.min(calls, Math.ceil(BULK / order.bulk)); call++) await addMany(queue, order.bulk, data);
    const figures = await meter();
    for (let call = 0; call < calls; call++) await addMany(queue, order.bulk, data);
    return figures(calls * order.bulk);
  },

  async concurrent() {
    const [queue, data] = [await open(), tiny()];
    const add = async (count) => {
      for (let each = 0; each < count; each++) await queue.add("x", data, REMOVED);
    };
    const fromAll = (count) => Promise.all(times(order.concurrency, () => add(count)));
    await fromAll(5);
    const each = Math.max(1, Math.floor(order.jobs / order.concurrency));
    const figures = await meter();
    await fromAll(each);
    return figures(each * order.concurrency);
  },

  async sequential() {
    const [queue, data] = [await open(), nested()];
    for (let each = 0; each < Math.min(500, order.jobs); each++) await queue.add("x", data, REMOVED);
    const figures = await meter();
    for (let each = 0; each < order.jobs; each++) await queue.add("x", data, REMOVED);
    return figures(order.jobs);
  },

  async work() {
    const [queue, data] = [await open(), tiny()];
    for (let left = order.jobs; left > 0; left -= BULK) await addMany(queue, Math.min(BULK, left), data);
    let [count, first] = [0, 0];
    const figures = await meter();
    await new Promise((done) =>
      worker(async () => {
        if (++count === 1) first = performance.now();
        if (count === order.jobs) done();
        if (order.pause_ms) await sleep(order.pause_ms);
      }),
    );
    while (await pending()) await sleep(1);
    return figures(order.jobs, first);
  },

  async latency() {
    if (!order.rate) return null;
    const foundS = [];
    const wanted = Math.floor(order.rate * order.seconds);
    await worker(async (job) => foundS.push(nowS() - job.data.sent_s)).waitUntilReady();
    await sleep(SETTLE_MS);
    const beside = JSON.stringify({ ...order, body: "produce" });
    const child = spawn(process.execPath, [self, packages, beside], { stdio: "ignore" });
    await new Promise((done) => child.on("exit", done));
    for (let waited = 0; foundS.length < wanted && waited < 30_000; waited += 20) await sleep(20);
    return quantiles(foundS.slice(Math.floor(foundS.length / 10)));
  },

  async produce() {
    const queue = await open();
    const beganS = nowS() + 0.2;
    for (let number = 0; number < order.rate * order.seconds; number++) {
      const earlyS = beganS + number / order.rate - nowS();
      if (earlyS > 0) await sleep(earlyS * 1_000);
      await queue.add("x", { sent_s: nowS() }, REMOVED);
    }
    return {};
  },

  async idle() {
    await worker(async () => {}).waitUntilReady();
    await sleep(2_000);
    const figures = await meter();
    await sleep(order.seconds * 1_000);
    const seen = await figures(1);
    return {
      cpu_percent: (seen.client_us / 1e6 / seen.seconds) * 100,
      commands_s: seen.commands / seen.seconds,
      rss_mb: process.resourceUsage().maxRSS / 1_024,
    };
  },
};

const cannot = !order.events || order.results || !(order.body in BODIES);
const figures = cannot ? null : await BODIES[order.body]();
console.log(JSON.stringify(figures === null ? { skipped: "its program has no such body" } : { figures }));
process.exit(0);

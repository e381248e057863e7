// Load on Redis through ioredis: `node load.js PORT`, see bench/peer_clients/README.md.

import { createInterface } from "node:readline";
import { Redis } from "ioredis";

const PAGE = 1000;
const redis = new Redis(Number(process.argv[2]));

async function rows() {
  let count = 0;
  let begin = "-";
  for (;;) {
    const page = await redis.xrange("rows", begin, "+", "COUNT", PAGE);
    if (page.length === 0) return count;
    for (const [, fields] of page) {
      const row = {};
      for (let at = 0; at < fields.length; at += 2) row[fields[at]] = fields[at + 1];
      count++;
    }
    begin = `(${page.at(-1)[0]}`;
  }
}

async function load({ operation, depth, count }) {
  const work = {
    get: (n) => redis.get(`k${n % 1000}`),
    set: (n) => redis.set(`k${n % 1000}`, n),
    publish: (n) => redis.xadd("topic", "*", "value", n),
  }[operation];
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  if (work) await Promise.all(Array.from({ length: depth }, worker));
  else next = await rows();
  if (next !== count) throw new Error(`there are ${next} rows`);
}

for await (const line of createInterface({ input: process.stdin })) {
  await load(JSON.parse(line));
  console.log("{}");
}
redis.disconnect();

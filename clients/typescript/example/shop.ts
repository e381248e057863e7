/**
 * A small shop: a queue of orders with a pool of workers, a cached page, and a live list.
 *
 *     node build/example/shop.js 127.0.0.1:8001 root PASSWORD [ORDERS]
 */
import { type Client, type Database, type Delivery, isRefused, open, type RecordId } from "../src/index.js";

interface Item {
  id: RecordId;
  name: string;
  stock: number;
}

interface Order {
  item: RecordId;
  count: number;
}

const WORKERS = 4;

async function define(client: Client): Promise<Database> {
  await client.run(`
    DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.example; USE shop.example;
    DEFINE TABLE IF NOT EXISTS item; DEFINE TABLE IF NOT EXISTS sold; DEFINE SPACE IF NOT EXISTS pages;
    DEFINE TOPIC IF NOT EXISTS orders; DEFINE GROUP IF NOT EXISTS packers ON orders DEADLINE 10s;
    UPSERT item:1 SET name = 'lamp', stock = 1000; UPSERT item:2 SET name = 'desk', stock = 1000; DELETE sold`);
  return client.database("shop", "example");
}

/** Packs an order: the stock, the sale and the acknowledgement change in one transaction. */
async function pack(message: Delivery<Order>): Promise<boolean> {
  const { item, count } = message.value;
  try {
    const answer = await message.done("UPDATE $item SET stock = stock - $count; CREATE sold SET item = $item, count = $count", {
      item,
      count,
    });
    return answer !== undefined;
  } catch (error) {
    if (!isRefused(error, "Conflict")) throw error;
    await message.nack({ delay: "50ms" }); // another worker sells the same item
    return false;
  }
}

/** Works on orders with a pool until so many are packed. */
async function work(db: Database, orders: number): Promise<void> {
  const messages = db
    .topic("orders")
    .group("packers")
    .messages<Order>({ prefetch: 2 * WORKERS, extend: true });
  let packed = 0;
  const worker = async () => {
    for await (const message of messages) {
      if (await pack(message)) packed++;
      if (packed >= orders) return; // the consumer stops, and with it the other workers
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, worker));
}

/** Returns the page of an item, made once a minute. */
function page(db: Database, id: RecordId): Promise<string> {
  return db.cache("pages").getOrSet(`item/${id}`, "1m", async () => {
    const item = await db.query<Item>("SELECT * FROM ONLY $id", { id });
    return `<h1>${item.name}</h1><p>${item.stock} left</p>`;
  });
}

/** Prints the list of items whenever it changes. */
async function list(db: Database, signal: AbortSignal): Promise<void> {
  await using items = await db.mirror<Item>("item", { signal });
  for (let seq = -1; !signal.aborted; ) {
    if (seq !== items.seq) console.log([...items].map(({ name, stock }) => `${name}: ${stock}`).join(", "));
    seq = items.seq;
    await items.changed(seq, { signal }).catch((error) => {
      if (!signal.aborted) throw error;
    });
  }
}

const [address = "127.0.0.1:8001", user = "root", password = "", orders = "20"] = process.argv.slice(2);
await using client = open(address, { user, password });
const db = await define(client);
const items = await db.query<Item[]>("SELECT * FROM item ORDER BY id");
const sold = Array.from({ length: Number(orders) }, (_, n) => ({ item: items[n % items.length]?.id, count: 1 }));
const over = new AbortController();
const listing = list(db, over.signal);
await db.topic("orders").publishMany(sold);
await work(db, sold.length);
for (const { id } of items) console.log(await page(db, id));
over.abort();
await listing;
console.log(`${await db.query("SELECT VALUE count() FROM ONLY sold GROUP ALL")} sold`);

/** The whole surface against the node that STORENODE_ADDRESS names. Each test has a namespace of its own. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test as nodeTest } from "node:test";
import {
  type BackupFile,
  type Client,
  Closed,
  type Copied,
  type Database,
  DateTime,
  Decimal,
  Duration,
  Float,
  isRefused,
  NONE,
  OutcomeUnknown,
  open,
  RecordId,
  type Refused,
  type StoreObject,
  Uuid,
  ValueError,
} from "../src/index.js";
import { failure, PATIENCE } from "./waits.js";

const { STORENODE_ADDRESS: ADDRESS, STORENODE_USER: USER = "root", STORENODE_PASSWORD: PASSWORD = "" } = process.env;

function test(name: string, body: (client: Client, db: Database) => Promise<void>): void {
  nodeTest(name, { timeout: 4 * PATIENCE, skip: ADDRESS === undefined }, async () => {
    await using client = open(ADDRESS ?? "", { user: USER, password: PASSWORD, connectTimeout: PATIENCE });
    const ns = name
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "_")
      .slice(0, 60);
    await client.run(`DEFINE NAMESPACE IF NOT EXISTS ${ns}; DEFINE DATABASE IF NOT EXISTS ${ns}.main`);
    await body(client, client.database(ns, "main"));
  });
}

async function refused(promise: Promise<unknown>, code: string): Promise<Refused> {
  const error = await failure(promise);
  assert.ok(isRefused(error, code), String(error));
  return error;
}

test("node values", async (_, db) => {
  const every: StoreObject = {
    null: null,
    bool: true,
    int: 2n ** 63n - 1n,
    least: -(2n ** 63n),
    small: 7,
    float: new Float(1),
    tenth: 0.1,
    decimal: new Decimal("12.30"),
    string: "naïve ☃ 'quoted'",
    bytes: Uint8Array.from([0, 255]),
    datetime: DateTime.parse("2026-01-02T03:04:05.123456Z"),
    before: DateTime.parse("1931-01-02T03:04:05.000007Z"),
    duration: Duration.from("-3d"),
    uuid: new Uuid("018f0000-0000-0000-0000-000000000000"),
    record: new RecordId("person", ["a", 1]),
    array: [1, [2.5, [new Decimal("1")]], "x"],
    object: { "b c": { d: [] } },
  };
  await db.run("DEFINE TABLE item; CREATE item:1 CONTENT $v", { v: { v: every } });
  const [found] = await db.query<[StoreObject]>("SELECT VALUE v FROM item");
  assert.deepStrictEqual(Object.fromEntries(Object.entries(found).sort()), Object.fromEntries(Object.entries(every).sort()));
  for (const name of ["decimal", "datetime", "duration", "uuid", "record"]) assert.equal(String(found[name]), String(every[name]));
  assert.equal(await db.query("RETURN $v", { v: NONE }), NONE);
});

test("node scripts", async (client, db) => {
  await db.run("DEFINE TABLE item");
  const refusal = await refused(db.run("CREATE item:1 SET a = 1; CREATE item:1 SET a = 2; RETURN 3"), "AlreadyExists");
  assert.deepEqual([refusal.statement, refusal.committed > 0, refusal.results.length], [2, true, 1]);
  const transaction = db.transaction();
  for (let n = 0; n < 3; n++) transaction.add("CREATE item CONTENT { n: $n, was: '$n' } -- $n", { n });
  const answer = await transaction.run();
  assert.equal(answer.results.length, 3);
  assert.deepEqual(await db.query("SELECT VALUE n FROM item WHERE n >= 0 ORDER BY n"), [0, 1, 2]);
  await refused(db.transaction().add("CREATE item:7").add("CREATE item:1").run(), "AlreadyExists");
  assert.deepEqual(await db.query("SELECT * FROM item:7"), []);
  assert.throws(() => db.transaction().add("COMMIT; CREATE item:8"), ValueError);
  await db.run("DELETE item");
  await db.run("INSERT INTO item $rows", { rows: Array.from({ length: 25 }, (_, n) => ({ id: n, name: `chair ${n}` })) });
  const read: string[] = [];
  const moment = await db.moment();
  for await (const row of moment.rows<{ name: string }>("SELECT id, name FROM item WHERE name != $not", { not: "chair 3" }, { page: 7 })) {
    if (read.length === 0) await db.run("DELETE item WHERE id > item:10");
    read.push(row.name);
  }
  assert.deepEqual([read.length, read[3], read[23]], [24, "chair 4", "chair 24"]);
  await moment.close();
  await refused(moment.run("RETURN 1"), "Unknown");
  assert.match((await failure(db.rows("SELECT name FROM item").next())).message, /`id` among its fields/);
  const options = { timeout: "1m", reason: "why", after: answer.seq, current: true, record: true };
  await db.run("CREATE item:99; SELECT * FROM item", {}, options);
  await client.ping();
  const welcome = await client.connect();
  assert.deepEqual([welcome.minor, welcome.writable, welcome.user?.name], [10, true, USER]);
  await refused(db.topic("none").read({ wait: "1m" }), "Unknown");
  assert.throws(() => client.database("not a name", "main"), ValueError);
});

test("node cache", async (_, db) => {
  await db.run("DEFINE SPACE sessions");
  const cache = db.cache("sessions");
  assert.equal(await cache.get("a"), undefined);
  await cache.set("a", { user: 7 }, { ttl: "1h" });
  assert.deepEqual(await cache.get("a"), { user: 7 });
  assert.ok(((await cache.ttl("a"))?.toMilliseconds() ?? 0) > 3_000_000);
  await cache.set("a", null, { keepTtl: true });
  assert.equal(await cache.get("a"), null);
  assert.equal(await cache.persist("a"), true);
  assert.equal(await cache.ttl("a"), null);
  assert.equal(await cache.ttl("none"), undefined);
  assert.equal(await cache.expire("a", 60_000), true);
  assert.equal(await cache.expire("none", 60_000), false);
  assert.equal(await cache.setIfAbsent("a", 1), false);
  assert.equal(await cache.setIfPresent("a", 1), true);
  assert.equal(await cache.compareAndSet("a", new Float(1), 2), false); // 1 is not 1.0
  assert.equal(await cache.compareAndSet("a", 1, 2), true);
  assert.equal(await cache.compareAndSet("b", NONE, "new"), true);
  assert.deepEqual([await cache.incr("n"), await cache.incr("n", 41)], [1, 42]);
  assert.equal(await cache.incr("big", 2n ** 60n), 2n ** 60n);
  assert.deepEqual([await cache.delete("a"), await cache.delete("a")], [true, false]);
  const names = Array.from({ length: 1_203 }, (_, n) => `key:${String(n).padStart(5, "0")}`);
  await Promise.all(names.map((name, n) => cache.set(name, n)));
  assert.deepEqual(await cache.keys({ prefix: "key:", after: "key:00001", limit: 2 }), names.slice(2, 4));
  const all: string[] = [];
  for await (const key of cache.allKeys("key:")) all.push(key);
  assert.deepEqual(all, names);

  let loads = 0;
  const loaded = await Promise.all(Array.from({ length: 5 }, () => cache.getOrSet("page", "1m", async () => ++loads)));
  assert.deepEqual(new Set(loaded).size, 1);

  await using lease = (await cache.lock("job", "1m", { holder: "one" })) ?? assert.fail();
  assert.equal(await cache.lock("job", "1m"), undefined);
  assert.equal(await lease.extend("2m"), true);
  assert.ok(lease.until.microseconds > DateTime.now().microseconds);
  assert.deepEqual([await lease.release(), lease.lost.aborted, await lease.release(), await lease.extend()], [true, true, false, false]);
  const again = (await cache.lock("job", "1m", { holder: "one", renew: true })) ?? assert.fail();
  assert.ok(again.fence > lease.fence);
  await again.release();
});

test("node topics", async (_, db) => {
  await db.run("DEFINE TOPIC jobs DEDUP 10m; DEFINE GROUP workers ON jobs DEADLINE 30s; DEFINE TABLE paid");
  const jobs = db.topic("jobs");
  const options = { key: "ana", id: "order-81", headers: { a: "b" } };
  assert.deepEqual(await jobs.publish({ order: 81 }, options), { position: 1, duplicate: false });
  assert.deepEqual(await jobs.publish("another", { id: "order-81" }), { position: 1, duplicate: true });
  assert.deepEqual(await jobs.publishMany([1, 2, 3]), { first: 2, last: 4 });
  await refused(jobs.publish(1, { expect: 9 }), "AssertFailed");
  await jobs.publish(5, { delay: "1h" });
  const page = await jobs.read<{ order: number }>();
  assert.deepEqual(
    [page.length, page[0]?.key, page[0]?.id, page[0]?.headers, page[0]?.value.order],
    [5, "ana", "order-81", { a: "b" }, 81],
  );
  assert.ok(page[4]?.due instanceof DateTime);

  const reader = jobs.reader("audit");
  await reader.define();
  for await (const message of reader.messages()) if (message.position === 3) break;
  const [third] = await reader.read();
  assert.equal(third?.position, 3);
  await reader.move(page[2]?.at ?? assert.fail());
  await reader.move(0);
  let count = 0;
  for await (const _message of reader.messages()) count++;
  assert.equal(count, 5);
  await jobs.reader("late").define("end");
  await reader.drop();

  const workers = jobs.group("workers");
  const [one, two] = await workers.take({ count: 2, member: "one" });
  assert.ok(one && two);
  assert.deepEqual([one.attempt, one.member], [1, "one"]);
  const done = await one.done("CREATE paid SET job = $job;\nCREATE paid SET job = 0", { job: one.value });
  assert.equal(done?.results.length, 2);
  assert.equal(await one.done("CREATE paid SET job = 1"), undefined);
  const wrong = await refused(two.done("CREATE paid:1;\n  CREATE paid:1"), "AlreadyExists");
  assert.deepEqual([wrong.statement, wrong.line, wrong.column], [2, 2, 3]);
  assert.equal((await refused(two.done("CREAT paid:1"), "UnexpectedToken")).column, 1);
  assert.deepEqual([await two.extend("1m"), await two.nack({ delay: 0, error: "later" }), await two.ack()], [true, true, false]);
  assert.deepEqual(await workers.ack([one.receipt, two.receipt]), { done: 0, stale: [one.receipt, two.receipt] });
  assert.equal(await db.query("SELECT VALUE count() FROM ONLY paid GROUP ALL"), 2);

  const many = 700;
  for (let n = 0; n < many / 100; n++) await jobs.publishMany(Array(100).fill(null));
  const messages = workers.messages({ prefetch: 200, extend: true });
  const acks: Promise<boolean>[] = [];
  for await (const message of messages) {
    acks.push(message.ack());
    if (acks.length === many) break; // that stops the consumer
  }
  assert.ok((await Promise.all(acks)).every((inTime) => inTime));
  await messages.stop();
  assert.equal(messages.stale, 0);
  const rest = await workers.take({ count: 1000 });
  assert.equal(rest.length, 3);
  for (const left of rest) assert.equal(await left.giveUp("no use"), true);
  assert.equal((await workers.info()).name, "workers");
  assert.equal((await jobs.info()).name, "jobs");
});

test("node C17 a consumer ends with its client", async (client, db) => {
  await db.run("DEFINE TOPIC jobs; DEFINE GROUP workers ON jobs DEADLINE 30s");
  for (const extend of [false, true]) {
    const consumer = db.topic("jobs").group("workers").messages({ extend });
    const abort = new AbortController();
    const aborted = failure(consumer.next({ signal: abort.signal }));
    await db.topic("jobs").publish(1); // the TAKE is at the node, or comes in time
    abort.abort();
    const error = await aborted.catch(() => undefined);
    assert.ok(error === undefined || error.name === "AbortError");
    await consumer.stop();
  }
  const left = db.topic("jobs").group("workers").messages();
  for (let found = await left.next(); found && found.position < 2; found = await left.next()) await found.ack();
  const waiting = failure(left.next());
  await client.close();
  assert.ok((await waiting) instanceof Closed);
});

test("node large requests and answers", async (client, db) => {
  const text = "x".repeat(6 << 20);
  await client.connect();
  const conn = client.nodes.home?.conn;
  for (let n = 0; n < 4; n++) {
    const abort = new AbortController();
    const asked = db.query("RETURN string::len($text)", { text }, { signal: abort.signal });
    setImmediate(() => abort.abort());
    const found = await asked.catch((error) => error);
    assert.ok(found === text.length || found instanceof OutcomeUnknown || found.name === "AbortError");
  }
  assert.ok((await db.query("RETURN $text", { text })) === text);
  await refused(db.run("RETURN [$text, $text, $text]", { text }), "AnswerTooLarge");
  assert.ok((await failure(db.run("RETURN $text", { text: "x".repeat(16 << 20) }))) instanceof ValueError);
  await client.ping();
  assert.equal(client.nodes.home?.conn, conn);
});

test("node feeds", async (_, db) => {
  const before = (await db.run("DEFINE TABLE item; CREATE item:1 SET name = 'desk'")).position;
  await db.run("BEGIN; UPDATE item:1 SET price = 90; CREATE item:2 SET name = 'shelf', price = 5; COMMIT");
  const watch = db.watch("item", { from: before, before: true });
  const seen: string[] = [];
  for await (const { changes } of watch) {
    for (const { action, id, before: was } of changes) seen.push(`${action} ${id} ${was?.name}`);
    break;
  }
  assert.deepEqual(seen, ["update item:1 desk", "create item:2 undefined"]);
  assert.deepEqual(watch.position, before);
  const again = db.watch("item", { from: before, actions: ["create"] });
  for await (const commit of again) {
    assert.equal(commit.changes.length, 1);
    again.stop();
  }
  assert.ok((again.position?.seq ?? 0) > before.seq);
  await refused(
    db
      .watch("item", { from: { seq: 1, store: "another" } })
      .changes()
      .next(),
    "Diverged",
  );

  const copies: Copied[] = [];
  await using mirror = await db.mirror("item", { where: "price > 10", page: 1, onCopy: (copied) => copies.push(copied) });
  assert.deepEqual([mirror.size, copies.map(({ rows }) => rows)], [1, [1]]);
  const answer = await db.run("UPDATE item:2 SET price = 35; UPDATE item:1 SET price = 5");
  await mirror.reached(answer.seq);
  assert.deepEqual([mirror.get(new RecordId("item", 2))?.name, [...mirror].length, mirror.seq], ["shelf", 1, answer.seq]);
  await mirror.changed(before.seq); // it has changed since then already
  const changed = failure(mirror.changed(mirror.seq));
  await mirror.close();
  assert.ok((await changed) instanceof Closed && mirror.error instanceof Closed);
});

test("node vaults", async (client, db) => {
  const seal = client.storeSeal;
  const passphrase = "open sesame, please";
  // Another client's tests may have set it before.
  await seal.changePassphrase(undefined, passphrase).catch(() => seal.unseal(passphrase));
  await db.run("DEFINE VAULT payment VERSIONS 2");
  const vault = db.vault("payment");
  await seal.seal();
  await refused(vault.write("k", 1), "Sealed");
  await refused(seal.unseal("another"), "WrongKey");
  assert.ok((await seal.unseal(passphrase)).microseconds > DateTime.now().microseconds);
  assert.deepEqual(await vault.write("stripe/live", "sk_1", { reason: "new" }), { written: true, version: 1 });
  assert.deepEqual(await vault.write("stripe/live", "sk_2", { ifAbsent: true }), { written: false, version: 1 });
  assert.deepEqual(await vault.write("stripe/live", "sk_2", { expectVersion: 1 }), { written: true, version: 2 });
  const found = await vault.reveal("stripe/live", { reason: "refunds" });
  assert.deepEqual([found.id, found.value, found.version], ["stripe/live", "sk_2", 2]);
  assert.equal((await vault.reveal("stripe/live", { version: 1 })).value, "sk_1");
  assert.deepEqual(await vault.list({ prefix: "stripe/", limit: 10 }), ["stripe/live"]);
  assert.equal((await vault.info()).records, 1);
  assert.equal((await vault.audit(1))[0]?.action, "list");
  assert.equal(await vault.erase("stripe/live", { reason: "done" }), true);
  await seal.seal();
  await refused(vault.list(), "Sealed");
});

test("node backups", async (client, db) => {
  await db.run("DEFINE TABLE item; CREATE item:1 SET text = 'a'");
  const folder = await mkdtemp(join(tmpdir(), "storeclient-"));
  const path = join(folder, "monday.storesnap");
  let last = 0;
  const found = await client.backupFile(path, { onProgress: (done) => (last = done) });
  const { size } = await stat(path);
  assert.deepEqual([found.bytes, found.form, last, found.records > 0], [size, "snapshot", size, true]);
  assert.equal(((await failure(client.backupFile(path))) as NodeJS.ErrnoException).code, "EEXIST");
  const of: BackupFile = await client.backupFile(`${path}2`, { ns: db.ns, db: db.db, reason: "to see" });
  assert.equal(of.records, 1);
  await refused(client.backupFile(`${path}3`, { ns: "nowhere" }), "Unknown");
  assert.deepEqual((await readdir(folder)).sort(), ["monday.storesnap", "monday.storesnap2"]);
  const stream = new TransformStream<Uint8Array, Uint8Array>();
  const length = (async () => {
    let sum = 0;
    for await (const chunk of stream.readable) sum += (chunk as Uint8Array).length;
    return sum;
  })();
  const streamed = await client.backup(stream.writable);
  await stream.writable.close();
  assert.equal(await length, streamed.bytes);
  await rm(folder, { recursive: true });
});

test("node refuses a password", async (client) => {
  await using other = open(client.nodes.given, { user: USER, password: "wrong" });
  await refused(other.connect(), "SignInRefused");
});

/** Workers of a history, each of which makes one record and counts one at a time. */

/** The rules of docs/clients.md, before a peer. The number of a rule is in the name of its test. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { Client } from "../src/client.js";
import { Closed, isRefused, OutcomeUnknown, ProtocolBroken, type Refused, Unreachable } from "../src/errors.js";
import { Kind } from "../src/frames.js";
import type { Delivery } from "../src/groups.js";
import { DateTime, Duration, RecordId, type StoreObject } from "../src/values.js";
import { type Asked, clientOf, ends, failure, PATIENCE, Peer, result, type Spoken, test, until } from "./peer.js";

const AT = new DateTime(1_000_000n);

test("C1 C51 one connection for all, and another behind it", async () => {
  const node = await Peer.listen();
  const events: string[] = [];
  const client = clientOf(node.address, {
    onConnection: ({ change, version, cause }) => events.push(`${change} ${version ?? (cause as Refused).code}`),
  });
  for (let round = 0; round < 2; round++) {
    const asked = Array.from({ length: 20 }, () => client.query("RETURN 1"));
    const one = await node.greet();
    for (const _ of asked) one.answer((await one.wants(Kind.RUN)).id, 1, 1);
    assert.deepEqual(await Promise.all(asked), Array(20).fill(1));
    one.refuse(0, "Busy");
    await until(() => events.length === 2 * round + 2);
  }
  await client.close();
  assert.deepEqual(events, ["connected 0", "lost Busy", "reconnected 0", "lost Busy"]);
});

test("C2 addresses", async () => {
  const given = (address: string | string[]) => new Client(address).nodes.given;
  assert.equal(given("a"), "a:8001");
  assert.equal(given(":9"), "127.0.0.1:9");
  assert.equal(given("[::1]:9, b:8,b:8"), "[::1]:9, b:8");
  assert.equal(given(["a:1", "b"]), "a:1, b:8001");
  for (const wrong of ["a:b", "a:0", "a:65536", "::1", "[::1", "a:1:2", "[]x"]) assert.throws(() => given(wrong), /is no address/);
  assert.throws(() => given(Array.from({ length: 65 }, (_, n) => `a:${n + 1}`)), /at most 64 nodes/);
  assert.throws(() => new Client("a,b", { token: "t" }), /a token is of one node/);
});

test("C3 a search goes on until a node is there", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const asked = client.query("RETURN 1");
  for (let n = 0; n < 3; n++) (await node.accept()).socket.destroy();
  void (await node.greet()).serve(1);
  assert.equal(await asked, 1);
  await client.close();
});

test("C3 no node is Unreachable", async () => {
  const node = await Peer.listen();
  await node.close();
  const client = clientOf(node.address, { connectTimeout: 50 });
  assert.ok((await failure(client.connect())) instanceof Unreachable);
  await client.close();
  await client.close();
  assert.ok((await failure(client.run("RETURN 1"))) instanceof Closed);
});

test("C4 a refused sign-in ends the search", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const asked = failure(client.run("RETURN 1"));
  const one = await node.accept();
  await one.wants(Kind.HELLO);
  one.say(Kind.REFUSED, 0, { error: { code: "SignInRefused", message: "no", status: 401, retry: false } });
  assert.ok(isRefused(await asked, "SignInRefused"));
  await client.close();
});

test("C5 sockets have keep-alive and no delay", async () => {
  if (process.platform !== "linux") return;
  const node = await Peer.listen();
  const { setNoDelay } = Socket.prototype;
  let isSet = false;
  Socket.prototype.setNoDelay = function (noDelay) {
    isSet ||= noDelay !== false;
    return setNoDelay.call(this, noDelay);
  };
  const client = clientOf(node.address);
  const connecting = client.connect();
  const one = await node.greet();
  await connecting;
  Socket.prototype.setNoDelay = setNoDelay;
  const port = (one.socket.remotePort ?? 0).toString(16).toUpperCase().padStart(4, "0");
  const lines = (await readFile("/proc/net/tcp", "utf8")).split("\n").map((line) => line.trim().split(/\s+/));
  const [kind, left] = lines.find((fields) => fields[1]?.endsWith(`:${port}`))?.[5]?.split(":") ?? [];
  assert.equal(kind, "02"); // keep-alive
  assert.ok(Number.parseInt(left ?? "", 16) <= 30 * 100, left); // in hundredths of a second
  assert.ok(isSet);
  await ends(client, one);
});

test("C6 certificates are checked", async () => {
  const folder = await mkdtemp(join(tmpdir(), "storeclient-"));
  const [keyPath, certPath] = [join(folder, "key"), join(folder, "cert")];
  const words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=node", "-days", "2"];
  execFileSync("openssl", [...words, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", keyPath, "-out", certPath], { stdio: "ignore" });
  const [key, cert] = await Promise.all([readFile(keyPath), readFile(certPath)]);
  await rm(folder, { recursive: true });
  const node = await Peer.listen({ key, cert }); // of 127.0.0.1, and not of localhost
  const client = clientOf(node.address, { tls: { ca: cert } });
  const asked = client.query("RETURN 1");
  void (await node.greet()).serve(1);
  assert.equal(await asked, 1);
  await client.close();
  const [, port] = node.address.split(":");
  for (const [address, tls] of [
    [`localhost:${port}`, { ca: cert }],
    [node.address, true],
  ] as const) {
    const wrong = clientOf(address, { tls });
    const error = await failure(wrong.connect());
    assert.ok(error instanceof Unreachable);
    assert.match(error.message, /is not trusted/);
    await wrong.close();
  }
});

test("C7 what a node is too old for is not sent", async () => {
  const node = await Peer.listen();
  node.minor = 0;
  const client = clientOf(node.address);
  const first = failure(client.run("SELECT 1", {}, { after: 7 }));
  const one = await node.accept();
  assert.deepEqual((await one.wants(Kind.HELLO)).body.minor, [0, 10]);
  one.welcome(0);
  const watching = client.database("a", "b").watch("c")[Symbol.asyncIterator]().next();
  const refusals = [first, client.run("SELECT 1", {}, { current: true }), client.storeSeal.unseal("secret"), watching].map(failure2);
  for (const [n, minor] of [7, 8, 6, 1].entries()) {
    const error = await (refusals[n] as Promise<Error>);
    assert.ok(isRefused(error, "VersionNotSupported"));
    assert.match(error.message, new RegExp(`version 0 .*came with ${minor}$`));
  }
  const asked = client.run("RETURN 1");
  const run = await one.wants(Kind.RUN);
  assert.equal(run.body.script, "RETURN 1");
  one.answer(run.id, null, 1);
  await asked;
  await ends(client, one);
});

function failure2(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    (found) => found as Error,
    (error) => error as Error,
  );
}

test("C8 what is not the protocol ends the connection", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  let asked = failure(client.run("RETURN 1"));
  const one = await node.greet();
  one.say(Kind.CHANGE, (await one.wants(Kind.RUN)).id, { type: "beat" });
  const error = await asked;
  assert.ok(error instanceof OutcomeUnknown && error.cause instanceof ProtocolBroken);
  asked = failure(client.run("RETURN 1"));
  const other = await node.greet();
  other.say(Kind.PONG, (await other.wants(Kind.RUN)).id, null); // that request alone fails
  assert.ok((await asked) instanceof ProtocolBroken);
  for (const body of [
    { results: 1, seq: 1 },
    { results: [1], seq: 1 },
    { results: [], seq: "1" },
    { results: [] },
    { results: [], seq: 1, epoch: "x" },
    { results: [{ ...result("value"), changed: "x" }], seq: 1 },
  ]) {
    asked = failure(client.run("RETURN 1"));
    other.say(Kind.ANSWER, (await other.wants(Kind.RUN)).id, body);
    assert.ok((await asked) instanceof ProtocolBroken);
  }
  other.say(Kind.PONG, 99, null); // its id is not open
  asked = failure(client.run("RETURN 1"));
  other.socket.write(Buffer.from([1, 0, 0, 1]));
  assert.match(String((await asked).cause), /a frame of 16777217 bytes/);
  await client.close();
});

test("C9 C47 nothing that is printed holds a secret", async () => {
  const secret = "open-sesame";
  const node = await Peer.listen();
  const client = clientOf(node.address, { password: secret });
  const db = client.database("a", "b");
  const unsealing = failure(client.storeSeal.unseal(secret));
  const one = await node.greet();
  assert.equal((await one.wants(Kind.VAULT)).body.passphrase, secret);
  one.socket.destroy();
  const unknown = await unsealing;
  assert.ok(unknown instanceof OutcomeUnknown);
  const writing = failure(db.vault("c").write("my id", secret));
  const two = await node.greet();
  const run = await two.wants(Kind.RUN);
  assert.equal(run.body.script, "WRITE $id IN VAULT `c` VALUE $value");
  assert.deepEqual(run.body.params, { id: "my id", value: secret });
  two.refuse(run.id, "Sealed");
  const revealing = db.vault("c").reveal("my id");
  const reveal = await two.wants(Kind.RUN);
  two.answer(reveal.id, { id: "my id", value: secret, version: 1, at: AT }, 2);
  const revealed = await revealing;
  assert.equal(revealed.value, secret);
  const other = new Client(node.address, { token: secret });
  const printed = [client, other, db, db.vault("c"), client.storeSeal, unknown, await writing, revealed];
  for (const each of printed) {
    for (const text of [String(each), inspect(each, { depth: 9 }), JSON.stringify(each)]) assert.ok(!text.includes(secret), text);
  }
  await ends(client, two);
});

test("C10 a session that ended", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const together = Array.from({ length: 8 }, () => client.query("RETURN 1"));
  const one = await node.greet();
  for (const _ of together) one.refuse((await one.wants(Kind.RUN)).id, "SessionEnded");
  const auth = await one.wants(Kind.AUTH); // one for all of them
  assert.equal(auth.body.password, "secret");
  one.welcome(auth.id);
  for (const _ of together) one.answer((await one.wants(Kind.RUN)).id, 1, 3);
  assert.deepEqual(await Promise.all(together), Array(8).fill(1));
  let asked = failure(client.run("CREATE a; RETURN 1"));
  one.refuse((await one.wants(Kind.RUN)).id, "SessionEnded", { committed: 4 });
  assert.ok(isRefused(await asked, "SessionEnded"));
  asked = failure(client.run("RETURN 1"));
  one.refuse((await one.wants(Kind.RUN)).id, "SessionEnded");
  one.refuse((await one.wants(Kind.AUTH)).id, "SignInRefused");
  assert.ok(isRefused(await asked, "SignInRefused"));
  await ends(client, one);
});

test("C11 ids are counted on each connection", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  for (let round = 0; round < 2; round++) {
    const running = client.run("RETURN 1");
    const one = await node.greet();
    const run = await one.wants(Kind.RUN);
    one.answer(run.id, null, 1);
    await running;
    const getting = client.database("a", "b").cache("c").get("k");
    const get = await one.wants(Kind.KV);
    one.say(Kind.VALUE, get.id, null);
    assert.equal(await getting, undefined);
    assert.deepEqual([run.id, get.id], [1, 2]);
    const { ended } = client.nodes.home?.conn ?? assert.fail();
    one.socket.destroy();
    await ended;
  }
  await client.close();
});

test("C12 requests do not wait for each other, and leave in one write", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const connecting = client.connect();
  const one = await node.greet();
  await connecting;
  const before = one.reads;
  const asked = Array.from({ length: 500 }, (_, n) => client.query(`RETURN ${n}`));
  const runs: Asked[] = [];
  for (const _ of asked) runs.push(await one.wants(Kind.RUN));
  assert.ok(one.reads - before <= 2, `they came in ${one.reads - before} reads`); // of 64 KiB at most
  assert.deepEqual(
    runs.map((run) => run.body.script),
    asked.map((_, n) => `RETURN ${n}`),
  );
  for (const run of runs.reverse()) one.answer(run.id, run.body.script, 2);
  assert.deepEqual(
    await Promise.all(asked),
    asked.map((_, n) => `RETURN ${n}`),
  );
  await ends(client, one);
});

// A peer that reads nothing: what stands in the buffers of both systems is much less than one request.
test("C13 C14 C18 what is not written", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const connecting = client.connect();
  const first = await node.greet();
  await connecting;
  first.socket.pause();
  const long = " ".repeat(15 << 20);
  const written = failure(client.run(`CREATE written${long}`));
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  const queued = client.query(`CREATE queued${long}`);
  const waiting = client.query("CREATE waiting");
  const abort = new AbortController();
  const cancelled = failure(client.run("CREATE cancelled", {}, { signal: abort.signal }));
  await new Promise((resolve) => setImmediate(resolve));
  abort.abort();
  assert.equal((await cancelled).name, "AbortError");
  first.socket.destroy();
  assert.ok((await written) instanceof OutcomeUnknown);
  const second = await node.greet();
  for (let n = 0; n < 2; n++) {
    const run = await second.wants(Kind.RUN);
    second.answer(run.id, String(run.body.script).trim(), 1);
  }
  assert.deepEqual([await queued, await waiting], ["CREATE queued", "CREATE waiting"]);
  await ends(client, second);
});

test("C14 a cancelled call", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  let abort = new AbortController();
  let asked = failure(client.run("SLOW", {}, { signal: abort.signal }));
  const one = await node.greet();
  const run = await one.wants(Kind.RUN);
  abort.abort(new Error("enough"));
  const error = await asked;
  assert.ok(error instanceof OutcomeUnknown && (error.cause as Error).message === "enough");
  assert.equal((await one.wants(Kind.CANCEL)).id, run.id);
  one.refuse(run.id, "Cancelled"); // dropped
  abort = new AbortController();
  asked = failure(client.run("SLOW READ", {}, { repeatable: true, signal: abort.signal }));
  await one.wants(Kind.RUN);
  abort.abort();
  assert.equal((await asked).name, "AbortError");
  await one.wants(Kind.CANCEL);
  assert.equal((await failure(client.run("CREATE a", {}, { signal: abort.signal }))).name, "AbortError");
  abort = new AbortController();
  const unsent = failure(client.run("CREATE b", {}, { signal: abort.signal }));
  const next = client.query("RETURN 2");
  await Promise.resolve();
  abort.abort(); // in the turn of its call
  assert.equal((await unsent).name, "AbortError");
  const other = await one.wants(Kind.RUN);
  assert.equal(other.body.script, "RETURN 2");
  one.answer(other.id, 2, 1);
  assert.equal(await next, 2);
  await ends(client, one);
});

test("C15 a timeout is the node's first", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address, { timeout: "1h" });
  const asked = failure(client.run("SLOW"));
  const one = await node.greet();
  const run = await one.wants(Kind.RUN);
  assert.equal(String(run.body.timeout), "1h");
  one.refuse(run.id, "StatementTimeout");
  assert.ok(isRefused(await asked, "StatementTimeout"));
  const taking = failure(client.database("a", "b").topic("c").group("d").take({ wait: "1m" }));
  const take = await one.wants(Kind.TOPIC);
  assert.deepEqual([String(take.body.timeout), String(take.body.wait)], ["1h1m", "1m"]);
  one.refuse(take.id, "Unknown");
  await taking;
  await ends(client, one);
});

test("C16 a peer that vanished", async () => {
  const node = await Peer.listen();
  let client = clientOf(node.address, {}, { quiet: 1, answer: PATIENCE });
  const asked = client.query("SLOW");
  const one = await node.greet();
  const run = await one.wants(Kind.RUN);
  one.say(Kind.PONG, (await one.wants(Kind.PING)).id, null); // it is there as long as it answers
  one.answer(run.id, 1, 2);
  assert.equal(await asked, 1);
  await ends(client, one);
  client = clientOf(node.address, {}, { quiet: 1, answer: 1 });
  const lost = failure(client.run("SLOW"));
  await node.greet();
  const error = await lost;
  assert.ok(error instanceof OutcomeUnknown);
  assert.match(String(error.cause), /PING/);
  await client.close();
});

test("C16 no PING behind a large request", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const asked = client.run(`RETURN 1${" ".repeat(5000)}`);
  const one = await node.greet();
  const run = await one.wants(Kind.RUN);
  const conn = client.nodes.home?.conn ?? assert.fail();
  assert.equal(conn.nextLook(performance.now() + 60_000), 20_000);
  one.answer(run.id, 1, 1);
  await asked;
  await ends(client, one); // a PING would have come before BYE, and been answered behind it
});

test("C17 close ends what only waits", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const reading = failure(client.database("a", "b").topic("c").read({ wait: "1m" }));
  const one = await node.greet();
  const read = await one.wants(Kind.RUN);
  const slow = client.query("CREATE slow");
  const run = await one.wants(Kind.RUN);
  const closed = client.close();
  assert.equal((await one.wants(Kind.CANCEL)).id, read.id);
  one.refuse(read.id, "Cancelled");
  assert.ok((await reading) instanceof Closed);
  assert.ok((await failure(client.run("RETURN 1"))) instanceof Closed);
  one.answer(run.id, "done", 3);
  assert.equal(await slow, "done");
  await one.wants(Kind.BYE);
  one.socket.end();
  await closed;
  await client.close();
});

test("C19 C20 what was sent is sent again only if it is repeatable", async () => {
  for (const repeatable of [false, true]) {
    const node = await Peer.listen();
    const client = clientOf(node.address);
    let asked = client.query("CREATE a", {}, { repeatable });
    if (!repeatable) asked.catch(() => {});
    const first = await node.greet();
    await first.wants(Kind.RUN);
    first.socket.destroy();
    if (!repeatable) {
      assert.ok((await failure(asked)) instanceof OutcomeUnknown);
      asked = client.query("RETURN 2");
    }
    const second = await node.greet();
    const run = await second.wants(Kind.RUN);
    assert.equal(run.body.script, repeatable ? "CREATE a" : "RETURN 2");
    second.answer(run.id, 2, 3);
    assert.equal(await asked, 2);
    await ends(client, second);
  }
});

test("C20 the ninth break is reported", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const asked = failure(client.run("RETURN 1", {}, { repeatable: true }));
  for (let n = 0; n < 9; n++) {
    const one = await node.greet();
    await one.wants(Kind.RUN);
    one.socket.destroy();
  }
  assert.ok((await asked) instanceof OutcomeUnknown);
  await client.close();
});

test("C21 the node's BYE", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const slow = client.query("SLOW");
  const first = await node.greet();
  const held = await first.wants(Kind.RUN);
  const crossing = client.query("CROSSING");
  const crossed = await first.wants(Kind.RUN);
  first.say(Kind.BYE, 0, null);
  first.refuse(crossed.id, "Draining");
  await first.wants(Kind.BYE);
  const second = await node.greet();
  const again = await second.wants(Kind.RUN);
  assert.equal(again.body.script, "CROSSING");
  second.answer(again.id, "elsewhere", 4);
  assert.equal(await crossing, "elsewhere");
  first.answer(held.id, "in time", 3);
  assert.equal(await slow, "in time");
  first.socket.end();
  await ends(client, second);
});

test("C22 C49 a refusal is an answer, with all of its fields", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const asked = failure(client.run("CREATE a; CREATE b", {}, { repeatable: true }));
  const one = await node.greet();
  const fields = { code: "OfALaterVersion", message: "no", status: 418, retry: true, detail: { committed: 7 } };
  const place = { request: "r-1", statement: 2, line: 3, column: 4 };
  one.say(Kind.ERROR, (await one.wants(Kind.RUN)).id, {
    error: { ...fields, ...place },
    results: [{ ...result("value", "a"), changed: 1 }],
  });
  const error = await asked;
  assert.ok(isRefused(error, "OfALaterVersion") && !(error instanceof OutcomeUnknown));
  const { code, text, status, retry, detail, request, statement, line, column, results, committed } = error;
  assert.deepEqual({ code, message: text, status, retry, detail }, fields);
  assert.deepEqual({ request, statement, line, column }, place);
  assert.deepEqual(results, [{ value: "a", kind: "value", rows: 0, took: new Duration(1n), changed: 1 }]);
  assert.equal(committed, 7);
  const draining = failure(client.run("RETURN 1", {}, { repeatable: true }));
  one.refuse((await one.wants(Kind.RUN)).id, "Draining"); // without a BYE
  assert.ok(isRefused(await draining, "Draining"));
  await ends(client, one);
});

test("C23 the node's last word is the cause of the end", async () => {
  for (const code of ["Draining", "NotWritable", "SessionEnded"]) {
    const node = await Peer.listen();
    const client = clientOf(node.address);
    const asked = failure(client.run("CREATE a"));
    const one = await node.greet();
    await one.wants(Kind.RUN);
    one.refuse(0, code);
    const error = await asked;
    assert.ok(error instanceof OutcomeUnknown && isRefused(error.cause, code));
    const repeatable = client.query("SELECT 1", {}, { repeatable: true });
    const two = await node.greet();
    await two.wants(Kind.RUN);
    two.refuse(0, code);
    const three = await node.greet();
    three.answer((await three.wants(Kind.RUN)).id, "again", 2);
    assert.equal(await repeatable, "again");
    await ends(client, three);
  }
});

test("C24 C25 the leader is followed", async () => {
  const [old, lead] = [await Peer.listen(), await Peer.listen()];
  old.writable = false;
  old.leader = [lead.address];
  const client = clientOf(`${old.address}, ${lead.address}`);
  let asked = client.query("CREATE a");
  void (await old.greet()).serve(null);
  const one = await lead.greet();
  one.answer((await one.wants(Kind.RUN)).id, "led", 5);
  assert.equal(await asked, "led");
  asked = client.query("CREATE b"); // the leader changes, for a moment to no node
  one.refuse((await one.wants(Kind.RUN)).id, "NotWritable", { leader: [] });
  void one.serve("was the leader");
  assert.notEqual(await asked, "led");
  await client.close();
});

test("C24 one node is asked whatever its role", async () => {
  const node = await Peer.listen();
  node.writable = false;
  node.leader = ["127.0.0.1:1"];
  const client = clientOf(node.address);
  const asked = failure(client.run("CREATE a"));
  const one = await node.greet();
  one.refuse((await one.wants(Kind.RUN)).id, "NotWritable", { leader: ["127.0.0.1:1"] });
  assert.ok(isRefused(await asked, "NotWritable"));
  await ends(client, one);
});

test("C26 C27 reads anywhere come behind what was seen", async () => {
  const [lead, other] = [await Peer.listen(), await Peer.listen()];
  other.writable = false;
  other.leader = [lead.address];
  const client = clientOf(`${lead.address},${other.address}`, { reads: "any" });
  const written = client.run("CREATE a");
  const one = await lead.greet();
  one.answer((await one.wants(Kind.RUN)).id, null, 41);
  await written;
  void one.serve("lead");
  assert.equal(await client.query("SELECT 1"), "lead"); // the other is connected meanwhile
  const two = await other.greet();
  await until(() => client.nodes.all.every((each) => each.usable));
  const reads = Promise.all(Array.from({ length: 4 }, () => client.query("SELECT 1")));
  for (let n = 0; n < 2; n++) {
    const run = await two.wants(Kind.RUN);
    assert.equal(run.body.after, 41);
    two.refuse(run.id, "StatementTimeout", { after: 41, seq: 40 }); // it is behind: home is asked
  }
  assert.deepEqual(await reads, Array(4).fill("lead"));
  assert.equal(await client.query("SELECT 1"), "lead"); // it is left alone
  await ends(client, two);
});

test("C28 a moment is read where it was made", async () => {
  const [maker, lead] = [await Peer.listen(), await Peer.listen()];
  const client = clientOf(`${maker.address},${lead.address}`);
  const making = client.database("a", "b").moment();
  const one = await maker.greet();
  let run = await one.wants(Kind.RUN);
  assert.deepEqual([run.body.moment, String(run.body.keep)], ["new", "1m"]);
  one.say(Kind.ANSWER, run.id, { results: [], seq: 4, store: "s", epoch: 1, moment: "m-1" });
  const moment = await making;
  const written = client.run("CREATE a");
  one.refuse((await one.wants(Kind.RUN)).id, "NotWritable", { leader: [lead.address] });
  const two = await lead.greet();
  two.answer((await two.wants(Kind.RUN)).id, null, 5);
  await written;
  const read = moment.query("SELECT 1");
  run = await one.wants(Kind.RUN);
  assert.equal(run.body.moment, "m-1");
  one.answer(run.id, "then", 4);
  assert.equal(await read, "then");
  await ends(client, one, two);
});

test("C29 a node of another store is read no more", async () => {
  const [lead, other] = [await Peer.listen(), await Peer.listen()];
  other.writable = false;
  const client = clientOf(`${lead.address},${other.address}`, { reads: "any" });
  const written = client.run("CREATE a");
  const one = await lead.greet();
  one.answer((await one.wants(Kind.RUN)).id, null, 4);
  await written;
  void one.serve("lead");
  assert.equal(await client.query("SELECT 1"), "lead");
  const two = await other.greet();
  await until(() => client.nodes.all.every((each) => each.usable));
  const reads = Promise.allSettled([client.query("SELECT 1"), client.query("SELECT 1")]);
  two.say(Kind.ANSWER, (await two.wants(Kind.RUN)).id, { results: [], seq: 4, store: "another", epoch: 1 });
  const [failed] = (await reads).filter((each) => each.status === "rejected");
  assert.ok(failed?.reason instanceof ProtocolBroken);
  for (let n = 0; n < 4; n++) assert.equal(await client.query("SELECT 1"), "lead");
  await ends(client, two);
});

test("C32 C33 a request names its place and its values", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const db = client.database("shop", "main");
  const running = db.run("RETURN $n", { n: "'; DELETE item" });
  const one = await node.greet();
  const run = await one.wants(Kind.RUN);
  assert.deepEqual(run.body, { script: "RETURN $n", ns: "shop", db: "main", params: { n: "'; DELETE item" } });
  one.answer(run.id, null, 1);
  await running;
  const getting = db.cache("sessions").get("k");
  const get = await one.wants(Kind.KV);
  assert.deepEqual(get.body, { op: "get", ns: "shop", db: "main", space: "sessions", key: "k" });
  one.say(Kind.VALUE, get.id, null);
  await getting;
  for (const wrong of ["", "1a", "a b", "a`", "x".repeat(65)]) assert.throws(() => db.topic(wrong), /is no name/);
  await ends(client, one);
});

test("C35 keys and leases", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const cache = client.database("a", "b").cache("c");
  await assert.rejects(cache.set("k", null, { ttl: 0 }), /longer than nothing/);
  const setting = cache.set("k", null);
  let one = await node.greet();
  const asks = async (want: StoreObject): Promise<number> => {
    const { id, body } = await one.wants(Kind.KV);
    for (const [name, item] of Object.entries(want)) assert.deepEqual(body[name], item);
    return id;
  };
  one.say(Kind.VALUE, await asks({ op: "set", value: null }), { written: true });
  await setting;
  const making = cache.getOrSet("k", "1m", () => "made");
  one.say(Kind.VALUE, await asks({ op: "get" }), null);
  const ifAbsent = { op: "set", value: "made", if: "absent", expire: new Duration(60_000_000n) };
  one.say(Kind.VALUE, await asks(ifAbsent), { written: false });
  one.say(Kind.VALUE, await asks({ op: "get" }), null); // it is gone by then
  one.say(Kind.VALUE, await asks(ifAbsent), { written: false });
  one.say(Kind.VALUE, await asks({ op: "get" }), { value: "theirs", ttl: null });
  assert.equal(await making, "theirs");

  const locking = cache.lock("k", 3, { renew: true });
  const lock = await one.wants(Kind.KV);
  assert.match(String(lock.body.holder), /^[0-9a-f]{32}$/);
  assert.equal(lock.body.fence, undefined);
  const held = { held: true, fence: 9, until: AT };
  one.say(Kind.VALUE, lock.id, held);
  const lease = (await locking) ?? assert.fail();
  const extends_ = { op: "lock", holder: lock.body.holder as string, fence: 9, expire: new Duration(3_000n) };
  one.say(Kind.VALUE, await asks(extends_), held);
  await asks(extends_);
  one.socket.destroy(); // it goes on through an outage
  one = await node.greet();
  one.say(Kind.VALUE, await asks(extends_), { held: false, fence: null, until: null });
  await until(() => lease.lost.aborted);
  assert.equal(await lease.extend(), false); // neither asks the node
  assert.equal(await lease.release(), false);
  await ends(client, one);
});

test("C36 a reader that follows outlives an outage", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const messages = client.database("a", "b").topic("jobs").messages({ follow: true });
  let next = messages.next();
  const one = await node.greet();
  const says = (on: Spoken, id: number, position: number) => on.answer(id, [{ position, at: AT, headers: {}, value: 1, bytes: 9 }], 1);
  one.refuse((await one.wants(Kind.RUN)).id, "Busy", {}, true); // before the first answer: it says that it passes
  const run = await one.wants(Kind.RUN);
  assert.deepEqual(run.body.params, { after: 0, limit: 1000, wait: new Duration(60_000_000n) });
  says(one, run.id, 1);
  assert.equal((await next).value?.position, 1);
  next = messages.next();
  one.refuse((await one.wants(Kind.RUN)).id, "NotWritable");
  await one.wants(Kind.RUN);
  one.socket.destroy();
  const two = await node.greet();
  const again = await two.wants(Kind.RUN);
  assert.equal((again.body.params as StoreObject).after, 1);
  says(two, again.id, 2);
  assert.equal((await next).value?.position, 2);
  const ended = failure(messages.next());
  two.refuse((await two.wants(Kind.RUN)).id, "Unknown");
  assert.ok(isRefused(await ended, "Unknown"));
  await ends(client, two);
});

function delivered(first: number, count: number): StoreObject[] {
  return Array.from({ length: count }, (_, n) => ({
    position: first + n,
    at: AT,
    headers: {},
    value: first + n,
    bytes: 9,
    receipt: `r${first + n}`,
    attempt: 1,
    deadline: AT,
    member: null,
  }));
}

test("C38 C39 C41 a consumer takes ahead and acknowledges together", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const consumer = client.database("a", "b").topic("jobs").group("workers").messages({ prefetch: 4 });
  const next = async () => (await consumer.next()) ?? assert.fail();
  const first = next();
  let one = await node.greet();
  const takes = async (count: number): Promise<number> => {
    const { id, body } = await one.wants(Kind.TOPIC);
    assert.deepEqual([body.op, body.count, String(body.wait)], ["take", count, "1m"]);
    return id;
  };
  const acks = async (...receipts: string[]): Promise<number> => {
    const { id, body } = await one.wants(Kind.TOPIC);
    assert.deepEqual([body.op, body.receipts], ["ack", receipts]);
    return id;
  };
  one.say(Kind.VALUE, await takes(4), { messages: delivered(1, 4) });
  const messages: Delivery[] = [await first, await next()];
  let take = await takes(2); // half of them are left
  const [r1, r2] = messages as [Delivery, Delivery];
  const alone = r1.ack();
  const ack = await acks("r1");
  const r3 = await next();
  const together = [r2.ack(), r2.ack(), r3.ack()]; // while one is under way
  one.say(Kind.VALUE, ack, { acked: 1, stale: 0, stale_receipts: [] });
  assert.equal(await alone, true);
  one.say(Kind.VALUE, await acks("r2", "r2", "r3"), { acked: 1, stale: 2, stale_receipts: ["r2", "r3"] });
  assert.deepEqual(await Promise.all(together), [true, false, false]); // of a receipt twice the first counts
  assert.equal(consumer.stale, 2);
  const broken = failure((await next()).ack()); // a break under an acknowledgement: a stale one may be its own
  await acks("r4");
  one.socket.destroy();
  one = await node.greet();
  const left = new Set(["take", "ack"]); // in no order
  while (left.size > 0) {
    const { id, body } = await one.wants(Kind.TOPIC);
    assert.ok(left.delete(body.op as string));
    if (body.op === "take") one.say(Kind.VALUE, id, { messages: delivered(5, 3) });
    else one.say(Kind.VALUE, id, { acked: 0, stale: 1, stale_receipts: ["r4"] });
  }
  assert.ok((await broken) instanceof OutcomeUnknown);
  await next();
  take = await takes(2);
  const stopped = consumer.stop();
  assert.equal((await one.wants(Kind.CANCEL)).id, take);
  one.say(Kind.VALUE, take, { messages: delivered(8, 1) }); // it was quick enough
  const back = await one.wants(Kind.TOPIC);
  assert.deepEqual([back.body.op, back.body.receipts, back.body.delay], ["nack", ["r6", "r7", "r8"], new Duration(0n)]);
  one.say(Kind.VALUE, back.id, { nacked: 3, stale: 0, stale_receipts: [] });
  await stopped;
  assert.equal(await consumer.next(), undefined);
  await ends(client, one);
});

test("C40 done is one transaction", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const group = client.database("a", "b").topic("jobs").group("workers");
  const taking = group.take();
  const first = await node.greet();
  first.say(Kind.VALUE, (await first.wants(Kind.TOPIC)).id, { messages: delivered(1, 1) });
  const [message] = (await taking) as [Delivery];
  const done = message.done("CREATE a;\nCREATE b", { n: 1 });
  const before =
    "BEGIN; LET $storeclient_receipt_ack = ACK `jobs` AS `workers` RECEIPTS [$storeclient_receipt]; " +
    "IF $storeclient_receipt_ack.stale > 0 { THROW 'storeclient: the receipt is stale' }; ";
  await first.wants(Kind.RUN);
  first.socket.destroy(); // twice does no harm
  const one = await node.greet();
  const run = await one.wants(Kind.RUN);
  assert.equal(run.body.script, `${before}CREATE a;\nCREATE b\n;COMMIT`);
  assert.deepEqual(run.body.params, { n: 1, storeclient_receipt: "r1" });
  one.say(Kind.ANSWER, run.id, { results: ["none", "none", "none", "rows", "none"].map((kind) => result(kind)), seq: 1 });
  assert.equal((await done)?.results.length, 1);
  await assert.rejects(message.done("CREATE a", { storeclient_receipt: "x" }), /names its own parameter so/);
  const stale = message.done("CREATE a");
  one.refuse((await one.wants(Kind.RUN)).id, "Thrown", { value: "storeclient: the receipt is stale" });
  assert.equal(await stale, undefined);
  const wrong = failure(message.done("CREAT a"));
  const error = {
    code: "BadRequest",
    message: "no",
    status: 400,
    retry: false,
    detail: {},
    statement: 4,
    line: 1,
    column: before.length + 3,
  };
  one.say(Kind.ERROR, (await one.wants(Kind.RUN)).id, { error, results: [] });
  const { statement, line, column } = (await wrong) as Refused;
  assert.deepEqual([statement, line, column], [1, 1, 3]);
  await ends(client, one);
});

test("C41 a consumer extends what it holds", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const consumer = client.database("a", "b").topic("jobs").group("workers").messages({ prefetch: 2, extend: true });
  const first = consumer.next();
  const one = await node.greet();
  for (let n = 0; n < 2; n++) {
    const asked = await one.next(); // TAKE and INFO, in no order
    if (asked.kind === Kind.RUN) {
      assert.equal(asked.body.script, "INFO FOR GROUP `workers` ON `jobs`");
      one.answer(asked.id, { deadline: new Duration(3_000n) }, 1);
    } else one.say(Kind.VALUE, asked.id, { messages: delivered(1, 2) });
  }
  const message = (await first) ?? assert.fail();
  for (let seen = 0; seen < 2; ) {
    const { id, body } = await one.wants(Kind.TOPIC); // of the one that was given out, and the one that was not
    if (body.op === "take") continue;
    assert.deepEqual([body.op, body.by], ["extend", new Duration(3_000n)]);
    const receipts = body.receipts as string[];
    if (receipts.length === 2) seen++;
    one.say(Kind.VALUE, id, { extended: 0, stale: 0, stale_receipts: seen === 2 ? receipts : [] });
  }
  void one.serve(null);
  await until(() => consumer["held"].size === 0 && consumer["ready"].length === 0); // they are forgotten
  assert.equal(message.receipt, "r1");
  await consumer.stop();
  await client.close();
});

const opened = (seq: number, start: number) => ({ type: "open", seq, start, store: "s", epoch: 2, start_epoch: 1 });

test("C42 C43 C44 a feed comes back where it was", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const watch = client.database("shop", "main").watch("item", { where: "a > 1" });
  const commits = watch[Symbol.asyncIterator]();
  let next = commits.next();
  const opens = async (on: Spoken, start: number) => {
    const asked = await on.wants(Kind.WATCH);
    on.say(Kind.CHANGE, asked.id, opened(20, start));
    return asked;
  };
  const part = (seq: number, number: number, of: number, name: string) => ({
    type: "commit",
    seq,
    epoch: 1,
    at: AT,
    by: "ana",
    reason: null,
    part: number,
    of,
    changes: [{ action: "update", id: new RecordId("item", name), value: { n: name } }],
  });
  const one = await node.greet();
  const asked = await opens(one, 7);
  assert.deepEqual([asked.body.where, asked.body.from], ["a > 1", undefined]);
  one.say(Kind.CHANGE, asked.id, part(8, 1, 2, "a"));
  one.say(Kind.CHANGE, asked.id, part(8, 2, 2, "b"));
  const commit = (await next).value ?? assert.fail();
  assert.deepEqual(
    commit.changes.map((change) => change.value),
    [{ n: "a" }, { n: "b" }],
  );
  assert.deepEqual([commit.by, commit.position], ["ana", { seq: 8, store: "s", epoch: 1 }]);
  assert.equal(watch.position?.seq, 7); // the next was not asked for
  next = commits.next();
  one.say(Kind.CHANGE, asked.id, part(9, 1, 2, "c")); // the other part never comes
  one.socket.end();
  const two = await node.greet();
  const again = await opens(two, 8);
  assert.deepEqual([again.body.from, again.body.store, again.body.epoch], [8, "s", 1]);
  two.say(Kind.CHANGE, again.id, { type: "beat", seq: 30, epoch: 2 });
  two.refuse(again.id, "TooSlow");
  const third = await opens(two, 30);
  assert.deepEqual([third.body.from, third.body.epoch], [30, 2]);
  two.refuse(third.id, "LogPruned");
  const error = await failure(next);
  assert.ok(isRefused(error, "LogPruned"));
  assert.match(error.message, /read the table again/);
  await ends(client, two);
});

test("C45 a feed that nobody reads is ended and opened again", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const watch = client.database("shop", "main").watch("item");
  const peer = (async () => {
    const one = await node.greet();
    for (let from = 0; from < 12; from += 6) {
      const asked = await one.wants(Kind.WATCH);
      assert.equal(asked.body.from ?? 0, from);
      one.say(Kind.CHANGE, asked.id, opened(99, from));
      for (let seq = from + 1; seq <= from + 6; seq++) {
        const changes = [{ action: "create", id: new RecordId("item", seq), value: { v: "x".repeat(1 << 20) } }];
        one.say(Kind.CHANGE, asked.id, { type: "commit", seq, epoch: 1, at: AT, by: null, reason: null, changes });
      }
      assert.equal((await one.wants(Kind.UNWATCH)).id, asked.id);
      one.say(Kind.ANSWER, asked.id, { seq: from + 6, epoch: 1 });
    }
    return one;
  })();
  let seq = 0;
  let one: Spoken | undefined;
  for await (const commit of watch) {
    assert.equal(commit.seq, ++seq);
    // Nothing is asked for until the feed has been ended: once in the first six, once in the others.
    if (seq === 1) await until(() => client.nodes.home?.conn?.["calls"].size === 0);
    if (seq === 7) one = await peer;
    if (seq === 12) break;
  }
  assert.equal(watch.position?.seq, 11); // the last is not handled before the next is asked for
  await ends(client, one ?? assert.fail());
});

test("C46 a mirror is read again where the log has no more", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const copies: { seq: number; why: unknown }[] = [];
  const opening = client.database("a", "b").mirror("item", { onCopy: (copied) => copies.push(copied) });
  const one = await node.greet();
  const reads = async (seq: number, name: string) => {
    for (let n = 0; n < 3; n++) {
      const { id, body } = await one.wants(Kind.RUN); // a moment, a page of it, and its end
      const rows = body.script === "" ? [] : [{ id: new RecordId("item", 1), name }];
      const moment = body.moment === "new" ? { moment: "m" } : {};
      one.say(Kind.ANSWER, id, { results: [result("rows", rows)], seq, store: "s", epoch: 1, ...moment });
    }
  };
  await reads(4, "lamp");
  const mirror = await opening;
  let watch = await one.wants(Kind.WATCH);
  assert.deepEqual([watch.body.from, watch.body.store, watch.body.epoch], [4, "s", 1]);
  one.refuse(watch.id, "LogPruned");
  assert.equal(mirror.get(new RecordId("item", 1))?.name, "lamp"); // meanwhile
  await reads(9, "desk");
  watch = await one.wants(Kind.WATCH);
  assert.deepEqual(
    [...mirror].map((row) => row.name),
    ["desk"],
  );
  assert.deepEqual(
    copies.map(({ seq, why }) => [seq, isRefused(why, "LogPruned")]),
    [
      [4, false],
      [9, true],
    ],
  );
  one.say(Kind.CHANGE, watch.id, opened(9, 9));
  const changes = [{ action: "delete", id: new RecordId("item", 1), value: null }];
  one.say(Kind.CHANGE, watch.id, { type: "commit", seq: 10, epoch: 1, at: AT, by: null, reason: null, changes });
  await mirror.reached(10);
  assert.equal(mirror.size, 0);
  void one.serve(null);
  await mirror.close();
  assert.ok(mirror.error instanceof Closed);
  await client.close();
});

test("C48 a backup is whole or no file", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const connecting = client.connect();
  const first = await node.greet();
  await connecting;
  const folder = await mkdtemp(join(tmpdir(), "storeclient-"));
  const path = join(folder, "monday");
  const part = (n: number, done: number, total: number) => ({ n, bytes: Buffer.from("12345"), done, total });
  const whole = { results: [result("value", { form: "snapshot", records: 3, version: "0" })], seq: 1 };
  const cases: Record<string, (one: Spoken, id: number) => void> = {
    "a part is missing": (one, id) => {
      one.say(Kind.PART, id, part(1, 5, 15));
      one.say(Kind.PART, id, part(3, 15, 15));
      one.say(Kind.ANSWER, id, whole);
    },
    "the last part is missing": (one, id) => {
      one.say(Kind.PART, id, part(1, 5, 10));
      one.say(Kind.ANSWER, id, whole);
    },
    "it is refused": (one, id) => {
      one.say(Kind.PART, id, part(1, 5, 10));
      one.refuse(id, "Busy");
    },
    "it breaks off": (one, id) => {
      one.say(Kind.PART, id, part(1, 5, 10));
      one.socket.end();
    },
    "it is whole": (one, id) => {
      for (let n = 1; n <= 20; n++) one.say(Kind.PART, id, part(n, 5 * n, 100));
      one.say(Kind.ANSWER, id, whole);
    },
  };
  for (const [name, says] of Object.entries(cases)) {
    const taking = client.backupFile(path);
    taking.catch(() => {});
    const own = await node.greet(); // a connection of its own
    const run = await own.wants(Kind.RUN);
    assert.deepEqual([run.body.script, run.body.stream], ["BACKUP", true]);
    says(own, run.id);
    if (name === "it is whole") assert.deepEqual(await taking, { bytes: 100, form: "snapshot", records: 3, version: "0" });
    else await failure(taking);
    assert.deepEqual(await readdir(folder), name === "it is whole" ? ["monday"] : []);
  }
  assert.equal(((await failure(client.backupFile(path))) as NodeJS.ErrnoException).code, "EEXIST");
  await rm(folder, { recursive: true });
  await ends(client, first);
});

test("C50 the node's UnknownOutcome is one too", async () => {
  const node = await Peer.listen();
  const client = clientOf(node.address);
  const asked = failure(client.run("CREATE a"));
  const one = await node.greet();
  one.refuse((await one.wants(Kind.RUN)).id, "UnknownOutcome");
  const error = await asked;
  assert.ok(error instanceof OutcomeUnknown && isRefused(error, "UnknownOutcome"));
  assert.ok(!(error instanceof Unreachable) && !(error instanceof ProtocolBroken) && !(error instanceof Closed));
  await ends(client, one);
});

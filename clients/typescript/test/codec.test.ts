import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { MalformedError, readFrameValue, Writer, writeGiven } from "../src/codec.js";
import { ProtocolBroken } from "../src/errors.js";
import { Frames, Kind, writeFrame } from "../src/frames.js";
import { hasTransactionWords, Pages, renamed } from "../src/pages.js";
import * as search from "../src/search.js";
import { DateTime, Decimal, Duration, Float, NONE, quoteName, RecordId, Uuid, type Value, ValueError } from "../src/values.js";
import { test } from "./waits.js";

function packed(value: unknown): Buffer {
  const writer = new Writer(1);
  writeGiven(writer, value);
  return Buffer.from(writer.bytes.subarray(0, writer.length));
}

function unpacked(bytes: Buffer): Value {
  return readFrameValue(bytes, 0, bytes.length);
}

const hex = (text: string) => Buffer.from(text.replaceAll(" ", ""), "hex");

const UUID = new Uuid("0b9f3a62-7c1e-4e0b-9d4e-3f3a5f0d9f11");

const VALUES: Value[] = [
  null,
  NONE,
  true,
  false,
  "",
  "a",
  "ü",
  "€".repeat(11),
  "x".repeat(31),
  "x".repeat(32),
  "x".repeat(255),
  "x".repeat(256),
  "x".repeat(70_000),
  "𝄞",
  "\ufffd",
  new Uint8Array(),
  Uint8Array.from([0, 255]),
  new Uint8Array(300),
  new Uint8Array(70_000),
  0,
  1,
  127,
  128,
  255,
  256,
  65_535,
  65_536,
  2 ** 32 - 1,
  2 ** 32,
  2 ** 53 - 1,
  2n ** 53n,
  2n ** 63n - 1n,
  -1,
  -32,
  -33,
  -128,
  -129,
  -32_768,
  -32_769,
  -(2 ** 31),
  -(2 ** 31) - 1,
  -(2 ** 53) + 1,
  -(2n ** 63n),
  0.5,
  -1e-7,
  new Float(1),
  new Float(0),
  new Float(-0),
  new Float(1e300),
  new Decimal("12.30"),
  new Decimal("-0"),
  new Decimal("1E+3"),
  new Decimal("1234567890.123456789012345678901234"),
  new DateTime(0n),
  new DateTime(1n),
  new DateTime(-1n),
  DateTime.parse("2026-01-31T12:00:00.000001Z"),
  DateTime.parse("2200-01-01T00:00:00Z"),
  DateTime.parse("0001-01-01T00:00:00Z"),
  DateTime.parse("9999-12-31T23:59:59.999999Z"),
  new DateTime((2n ** 34n - 1n) * 1_000_000n + 999_999n),
  Duration.from("1h30m"),
  new Duration(-(2n ** 63n)),
  new Duration(2n ** 63n - 1n),
  UUID,
  new RecordId("item", 1),
  new RecordId("item", "any text"),
  new RecordId("item", 2n ** 60n),
  new RecordId("item", UUID),
  new RecordId("item", ["a", 1, [UUID, -5]]),
  [],
  [1, "a", [null]],
  Array(16).fill(0),
  Array(70_000).fill(1),
  {},
  { a: 1, b: { c: [new Float(2)] } },
  Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`f${n}`, n])),
];

test("c30 names of fields come back, seen before or not", () => {
  const names = Array.from({ length: 5000 }, (_, n) => `${"field".repeat(n % 6)}${n}`);
  for (let round = 0; round < 2; round++) {
    for (const name of [...names, "", "ü", "\u00e9t\u00e9", "\ufffd", "__proto__", "𝄞𝄞"]) {
      const found = unpacked(packed(new Map([[name, 1]])));
      assert.deepEqual(Object.entries(found as object), [[name, 1]]);
    }
  }
  const cut = Buffer.concat([hex("81"), hex("a5 666965")]);
  assert.throws(() => unpacked(cut), MalformedError);
});

test("C30 values come back as they went", () => {
  for (const value of VALUES) {
    const back = unpacked(packed(value));
    assert.deepStrictEqual(back, value);
    assert.deepEqual(packed(back), packed(value));
    if (typeof value !== "object" || value === null) continue;
    assert.equal(String(back), String(value)); // of types whose members are private
  }
  assert.equal(packed(1).toString("hex"), "01");
  assert.equal(packed(new Float(1)).toString("hex"), "cb3ff0000000000000");
  assert.ok(Object.is(Number(unpacked(packed(-0))), -0));
  assert.deepEqual(unpacked(packed(2n)), 2);
  assert.deepEqual(unpacked(packed(new Date(5))), new DateTime(5_000n));
  assert.deepEqual(unpacked(packed({ a: undefined, b: 1 })), { b: 1 });
  assert.deepEqual(unpacked(packed(new Map([["a", 1]]))), { a: 1 });
  const polluting = unpacked(hex("81 a9 5f5f70726f746f5f5f 81 a1 61 01")) as { [name: string]: unknown };
  assert.deepEqual(Object.keys(polluting), ["__proto__"]);
  assert.equal(Object.getPrototypeOf(polluting), Object.prototype);
  assert.equal(unpacked(hex("ca 3f 00 00 00")), 0.5); // a float of 32 bit
});

test("C53 vectors are arrays of floats", () => {
  const floats = [new Float(1), 0.5];
  for (const vector of [Float32Array.of(1, 0.5), Float64Array.of(1, 0.5)]) assert.deepStrictEqual(unpacked(packed(vector)), floats);
  assert.throws(() => packed({ at: Float32Array.of(1, Number.NaN) }), { path: ".at[1]" });
  let deep: unknown = Float32Array.of(1);
  for (let n = 0; n < 65; n++) deep = [deep];
  assert.throws(() => packed(deep), ValueError);
  assert.deepEqual(packed(search.phrase("tin ore")), packed({ phrase: ["tin ore", 0] }));
  assert.deepEqual(packed(search.fuzzy("tin")), packed({ fuzzy: ["tin", 1] }));
});

test("C30 random values come back as they went", () => {
  let seed = 7;
  const random = (most: number) => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (seed >>> 8) % most;
  };
  const make = (depth: number): Value => {
    const kind = random(depth > 5 ? 8 : 10);
    if (kind === 8) return Array.from({ length: random(20) }, () => make(depth + 1));
    if (kind === 9)
      return Object.fromEntries(Array.from({ length: random(20) }, (_, n) => [`${"k".repeat(random(40))}${n}`, make(depth + 1)]));
    return VALUES[random(VALUES.length - 8)] as Value;
  };
  for (let n = 0; n < 200; n++) {
    const value = make(0);
    assert.deepStrictEqual(unpacked(packed(value)), value);
  }
});

test("bytes of the protocol page", () => {
  const writer = new Writer();
  writeFrame(writer, Kind.HELLO, 0, { magic: "STORE", major: 1, minor: [0, 0], client: "demo/1", token: "t0k" });
  writeFrame(writer, Kind.RUN, 1, { script: "RETURN $n", params: { n: new Decimal("12.30") } });
  writeFrame(writer, Kind.PING, 2, null);
  const said =
    "00000038 930100 85 a56d61676963 a553544f5245 a56d616a6f72 01 a56d696e6f72 920000 a6636c69656e74 a664656d6f2f31 a5746f6b656e a374306b" +
    "00000027 930301 82 a6736372697074 a952455455524e20246e a6706172616d73 81 a16e c7050131322e3330 00000004 930502c0";
  assert.equal(writer.bytes.subarray(0, writer.length).toString("hex"), said.replaceAll(" ", ""));
  const frames = new Frames();
  const answer = hex("0000001d 932201 81 a7726573756c7473 91 81 a4746f6f6b d70200000000000000b4 00000004 932402c0");
  for (const byte of answer) frames.add(Buffer.from([byte])); // it comes byte by byte
  assert.deepEqual(frames.next(), { kind: Kind.ANSWER, id: 1, body: { results: [{ took: new Duration(180n) }] }, size: 29 });
  assert.equal(frames.next()?.kind, Kind.PONG);
  assert.equal(frames.next(), undefined);
});

test("C31 what is no value is named", () => {
  const cycle: unknown[] = [];
  cycle.push(cycle);
  const cases: [unknown, string][] = [
    [Number.NaN, ""],
    [Number.POSITIVE_INFINITY, ""],
    [2 ** 53, ""],
    [2n ** 63n, ""],
    [undefined, ""],
    [() => 1, ""],
    [Symbol("a"), ""],
    [new Set(), ""],
    [/a/, ""],
    [new Date(Number.NaN), ""],
    ["\ud800", ""],
    [{ "\ud800": 1 }, ""],
    [new Map([[1, 1]]), ""],
    [{ sizes: [1, 2, Number.NaN] }, ".sizes[2]"],
    [[[undefined]], "[0][0]"],
    [{ a: { b: /x/ } }, ".a.b"],
    [new RecordId("a", 1.5), ""],
    [{ id: new RecordId("a", [null as never]) }, ".id"],
  ];
  for (const [value, path] of cases) {
    assert.throws(
      () => packed(value),
      (error) => error instanceof ValueError && error.path === path,
      String(path),
    );
  }
  assert.throws(() => packed(cycle), /nests deeper than 64/);
  const writer = new Writer();
  const places: [object, string][] = [
    [{ params: { item: { sizes: [1, 2, /x/] } } }, "$item.sizes[2]"],
    [{ values: [1, { a: Number.NaN }] }, "values[1].a"],
    [{ value: [Number.NaN] }, "value[0]"],
  ];
  for (const [body, path] of places) {
    assert.throws(
      () => writeFrame(writer, Kind.RUN, 1, body as never),
      (error) => error instanceof ValueError && error.path === path,
    );
    assert.equal(writer.length, 0); // nothing of it is left
  }
});

test("C8 what is no message is refused", () => {
  for (const text of [
    "c1",
    "93",
    "a5 61",
    "d9 ff 61",
    "dd ffffffff",
    "df ffffffff",
    "82 01 01 02 02",
    "81 01 01",
    "a1 ff",
    "c7 03 07 010203",
    "c7 00 01",
    "cf ffffffffffffffff",
    "d6 02 00000000",
    "d4 03 00",
    "c7 05 ff 0000000000",
    "c7 01 04 c0",
    "c7 03 04 92 a161 c0",
    "01 01",
  ]) {
    assert.throws(() => unpacked(hex(text)), MalformedError, text);
  }
  const framed = (text: string) => {
    const frames = new Frames();
    const bytes = hex(text);
    frames.add(Buffer.concat([Buffer.from([0, 0, 0, bytes.length]), bytes]));
    return () => frames.next();
  };
  for (const text of ["92 22 01", "93 22 01 01", "93 22 a1 61 c0", "93 63 01 c0", "93 03 01 c0", "93 22 01 80 00", "c0"]) {
    assert.throws(framed(text), ProtocolBroken, text);
  }
  const frames = new Frames();
  frames.add(Buffer.from("HTTP/1.1 400"));
  assert.throws(() => frames.next(), /HTTP is spoken there/);
});

test("C8 values nest as deep as they may", () => {
  const nested = (depth: number): Value => (depth === 0 ? 1 : { a: nested(depth - 1) });
  assert.deepEqual(unpacked(packed(nested(64))), nested(64));
  assert.throws(() => packed(nested(65)), ValueError);
  assert.deepEqual(unpacked(packed([nested(64)])), [nested(64)]); // rows are values by themselves
  assert.throws(() => packed([nested(65)]), ValueError);
  const deep = Buffer.concat([Buffer.alloc(80, 0x91), Buffer.from([1])]);
  assert.ok(unpacked(deep));
  assert.throws(() => unpacked(Buffer.concat([Buffer.from([0x91]), deep])), /deeper than 80/);
});

test("texts", () => {
  assert.equal(String(new RecordId("item", 1)), "item:1");
  assert.equal(String(new RecordId("my-item", "any `text`")), "`my-item`:`any \\`text\\``");
  assert.equal(String(new RecordId("item", ["it's\n", UUID])), `item:['it\\'s\\n', u'${UUID}']`);
  for (const text of ["0s", "1h30m", "1w1d1h1m1s1ms1us", "-5m"]) assert.equal(String(Duration.from(text)), text);
  assert.equal(Duration.from(1.5).microseconds, 1500n);
  assert.equal(Duration.from("250ms").toMilliseconds(), 250);
  for (const wrong of ["", "1", "1x", "h", "1.5h"]) assert.throws(() => Duration.from(wrong), RangeError);
  assert.equal(String(new DateTime(-1n)), "1969-12-31T23:59:59.999999Z");
  assert.equal(DateTime.from(new Date(1_500)).toDate().getTime(), 1_500);
  assert.throws(() => new DateTime(-(10n ** 18n)), RangeError);
  for (const wrong of ["", "1.2.3", "1e", "x", "1".repeat(35), "1e99999"]) assert.throws(() => new Decimal(wrong), RangeError);
  assert.deepEqual(new Decimal("-12.30").parts(), { unscaled: -1230n, scale: 2 });
  assert.equal(new Decimal("12.30").compare(new Decimal("1.23E1")), 0);
  assert.equal(new Decimal("2").compare(new Decimal("12.3")), -1);
  assert.equal(String(new Uuid(UUID.bytes())), String(UUID));
  assert.throws(() => new Uuid("0b9f"), RangeError);
  assert.equal(new Float(2).valueOf() * 3, 6);

  assert.equal(
    JSON.stringify({ a: new Float(1), d: new Decimal("1.0"), t: new DateTime(0n) }),
    '{"a":1,"d":"1.0","t":"1970-01-01T00:00:00Z"}',
  );
});

test("C32 names are quoted", () => {
  assert.equal(quoteName("my-table"), "`my-table`");
  for (const wrong of ["", "1a", "a`b", "a b", "x".repeat(65)]) assert.throws(() => quoteName(wrong), /is no name/);
});

test("C34 pages of a SELECT", () => {
  const script = (text: string, after?: Value) => new Pages(text, { p: 1 }, 2).script(after);
  assert.deepEqual(script("SELECT * FROM item"), {
    text: "SELECT * FROM item\n ORDER BY id LIMIT $storeclient_rows",
    params: { p: 1, storeclient_rows: 2 },
  });
  const after = new RecordId("item", 1);
  assert.deepEqual(script("SELECT id, value FROM item WHERE a = 'LIMIT' OR b -- x", after), {
    text: "SELECT id, value FROM item \n WHERE id > $storeclient_after AND ( a = 'LIMIT' OR b -- x\n) ORDER BY id LIMIT $storeclient_rows",
    params: { p: 1, storeclient_after: after, storeclient_rows: 2 },
  });
  assert.ok(script("SELECT limit, (SELECT * FROM a LIMIT 1) FROM item WHERE start > 1 AND group = 2"));
  for (const wrong of [
    "RETURN 1",
    "SELECT 1",
    "SELECT VALUE a FROM b",
    "SELECT * FROM ONLY a",
    "SELECT * FROM a; SELECT 1",
    ...["SPLIT a", "GROUP ALL", "HAVING a", "ORDER BY a", "LIMIT 1", "START 1", "FETCH a", "TIMEOUT 1s"].map(
      (more) => `SELECT * FROM a ${more}`,
    ),
  ]) {
    assert.throws(() => script(wrong), ValueError, wrong);
  }
  assert.throws(() => new Pages("SELECT * FROM a", { storeclient_rows: 1 }, 2), ValueError);
  assert.throws(() => new Pages("SELECT * FROM a", {}, 0), ValueError);
  assert.equal(renamed("$a + '$a' + $ab -- $a", new Map([["a", "a__1"]])), "$a__1 + '$a' + $ab -- $a");
  assert.ok(hasTransactionWords("create a; commit") && !hasTransactionWords("CREATE a SET text = 'BEGIN', commits = 1"));
});

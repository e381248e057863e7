import { type FileHandle, link, lstat, open as openFile, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type Answer, needed } from "./answers.js";
import { type Client, checkMinor } from "./client.js";
import { type Call, type Connection, MINOR_OF_STREAMS, type Sink } from "./connection.js";
import { NotSent, ProtocolBroken, Unreachable } from "./errors.js";
import { Kind } from "./frames.js";
import type { CallOptions } from "./runner.js";
import { quoteName, type StoreObject } from "./values.js";
import { News } from "./waits.js";

/** Parts of a backup that are held; a part has at most 1 MiB. Past them nothing is read. */
const PARTS_MOST = 8;

export interface BackupOptions extends CallOptions {
  /** Limits the backup to a namespace, or with `db` to one database. */
  ns?: string;
  db?: string;
  /** Kept with the statement in the statement log. */
  reason?: string;
  /** Called after each part with the bytes written and the bytes in total. */
  onProgress?: (done: number, total: number) => void;
}

/** A snapshot that was taken. */
export interface BackupFile {
  bytes: number;
  form: string;
  /** Records of tables. */
  records: number;
  /** Version of the node. */
  version: string;
}

/** Receives the bytes of a backup: a function, a `WritableStream`, or a Writable of Node. */
export type BackupSink =
  | ((bytes: Uint8Array) => void | Promise<void>)
  | { getWriter(): { write(bytes: Uint8Array): Promise<void>; releaseLock(): void } }
  | { write(bytes: Uint8Array, onWritten: (error?: Error | null) => void): boolean };

/** The parts of one snapshot, as they come. */
class Parts implements Sink {
  private coming: StoreObject[] = [];
  private over: { error: unknown; answer: Answer | undefined } | undefined;
  private readonly news = new News();

  constructor(private readonly conn: Connection) {}

  onMessage(body: StoreObject): void {
    this.coming.push(body);
    if (this.coming.length >= PARTS_MOST) this.conn.pause();
    this.news.announce();
  }

  onEnd(error: unknown, answer: Answer | undefined): void {
    this.over = { error, answer };
    this.news.announce();
  }

  /** Returns the next part, or the answer behind the last. */
  async next(): Promise<StoreObject | Answer | undefined> {
    for (;;) {
      const part = this.coming.shift();
      if (part) {
        if (this.coming.length === 0 && this.conn.isStalled) this.conn.resume();
        return part;
      }
      if (this.over) {
        if (this.over.error instanceof NotSent) throw new Unreachable("the connection ended before anything was sent");
        if (this.over.error !== undefined) throw this.over.error;
        return this.over.answer;
      }
      await this.news.wait();
    }
  }
}

export function backup(client: Client, to: BackupSink, options: BackupOptions): Promise<BackupFile> {
  const write = writerOf(to);
  return client.nodes.withOwn(options.signal, async (conn) => {
    checkMinor(conn, MINOR_OF_STREAMS, "streams");
    const parts = new Parts(conn);
    const ignore = () => {};
    const call: Call = { kind: Kind.RUN, id: 0, waits: false, sink: parts, resolve: ignore, reject: ignore, start: 0, end: 0 };
    conn.begin({ kind: Kind.RUN, body: { script: statement(options), stream: true, reason: options.reason } }, call);
    try {
      return await writeParts(parts, write.write, options.onProgress);
    } finally {
      write.over();
    }
  });
}

function statement({ ns, db }: BackupOptions): string {
  if (ns === undefined && db === undefined) return "BACKUP";
  const place = quoteName(ns ?? "");
  return db === undefined ? `BACKUP OF NAMESPACE ${place}` : `BACKUP OF ${place}.${quoteName(db)}`;
}

function writerOf(to: BackupSink): { write: (bytes: Uint8Array) => void | Promise<void>; over: () => void } {
  if (typeof to === "function") return { write: to, over: () => {} };
  if ("getWriter" in to) {
    const writer = to.getWriter();
    return { write: (bytes) => writer.write(bytes), over: () => writer.releaseLock() };
  }
  const write = (bytes: Uint8Array) =>
    new Promise<void>((resolve, reject) => {
      to.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
  return { write, over: () => {} };
}

async function writeParts(
  parts: Parts,
  write: (bytes: Uint8Array) => void | Promise<void>,
  onProgress: ((done: number, total: number) => void) | undefined,
): Promise<BackupFile> {
  let done = 0;
  let total = 0;
  let part = await parts.next();
  for (; part && !isAnswer(part); part = await parts.next()) {
    const bytes = needed(part, "bytes", "bytes");
    total = needed(part, "total", "int");
    done += bytes.length;
    if (needed(part, "done", "int") !== done || done > total) throw new ProtocolBroken("a part of the snapshot is missing");
    await write(bytes);
    onProgress?.(done, total);
  }
  if (!part || done === 0 || done !== total) throw new ProtocolBroken("the snapshot ended before its last part");
  const told = needed({ answer: (part as Answer).value }, "answer", "object");
  const [form, records, version] = [needed(told, "form", "string"), needed(told, "records", "int"), needed(told, "version", "string")];
  return { bytes: done, form, records, version };
}

function isAnswer(part: StoreObject | Answer): part is Answer {
  return Object.getPrototypeOf(part) !== Object.prototype;
}

/** Writes a snapshot to a new file. One that exists is refused with the error EEXIST. */
export async function backupFile(client: Client, path: string, options: BackupOptions): Promise<BackupFile> {
  if (await exists(path)) throw Object.assign(new Error(`EEXIST: file already exists, backup '${path}'`), { code: "EEXIST", path });
  const partial = join(dirname(path), `${basename(path)}.${process.pid}.${Math.random().toString(36).slice(2)}.partial`);
  const file = await openFile(partial, "wx", 0o600);
  try {
    const found = await backup(client, (bytes) => writeAll(file, bytes), options);
    await file.sync();
    await link(partial, path); // a link replaces nothing
    await syncFolder(dirname(path));
    return found;
  } finally {
    await file.close();
    await unlink(partial);
  }
}

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at)).bytesWritten;
}

function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return false;
      throw error;
    },
  );
}

async function syncFolder(path: string): Promise<void> {
  const folder = await openFile(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

import { needed, strings } from "./answers.js";
import type { Client, Database } from "./client.js";
import { type Body, Kind } from "./frames.js";
import { type CallOptions, hide, type Params } from "./runner.js";
import { type DateTime, quoteName, type StoreObject, type Value } from "./values.js";

/** Opens and closes the vaults without a passphrase of their own. Passphrases are never statement text. */
export class Seal {
  /** @internal */
  protected readonly client: Client;
  private readonly place: Body;

  /** @internal */
  constructor(client: Client, place: Body) {
    this.client = client;
    this.place = place;
    hide(this, "client");
  }

  private ask(op: string, fields: Body, options: CallOptions): Promise<StoreObject> {
    return this.client.change({ kind: Kind.VAULT, body: { op, ...this.place, ...fields } }, options);
  }

  /** Opens the vaults and returns the time at which they close. Use does not extend it. */
  async unseal(passphrase: string, options: CallOptions = {}): Promise<DateTime> {
    return needed(await this.ask("unseal", { passphrase }, options), "until", "datetime");
  }

  /** Closes the vaults. */
  async seal(options: CallOptions = {}): Promise<void> {
    await this.ask("seal", {}, options);
  }

  /** Changes the passphrase and returns the number of keys wrapped again. Without `old` it sets the first. */
  changePassphrase(old: string | undefined, passphrase: string, options: CallOptions = {}): Promise<number> {
    return this.change(old, passphrase, false, options);
  }

  /** Changes the passphrase after a leak: all keys are replaced and every value is encrypted again. */
  rekey(old: string, passphrase: string, options: CallOptions = {}): Promise<number> {
    return this.change(old, passphrase, true, options);
  }

  private async change(old: string | undefined, passphrase: string, rekey: boolean, options: CallOptions): Promise<number> {
    return needed(await this.ask("passphrase", { old, new: passphrase, rekey }, options), "rewrapped", "int");
  }
}

export interface VaultOptions extends CallOptions {
  /** Reason in the vault's audit trail. */
  reason?: string;
}

export interface WriteOptions extends VaultOptions {
  /** Write only if the record does not exist. */
  ifAbsent?: boolean;
  /** Write only if the record has this version; 0: it does not exist. */
  expectVersion?: number;
}

export interface RevealOptions extends VaultOptions {
  /** A version in the place of the newest. */
  version?: number;
}

export interface ListOptions extends CallOptions {
  prefix?: string;
  /** Id behind which the listing goes on. */
  after?: string;
  /** At most 1000, the default. */
  limit?: number;
}

/** The value of a record of a vault. It is not shown where the object is printed. */
export class Revealed<T = Value> {
  readonly id: string;
  readonly version: number;
  /** Time of that version. */
  readonly at: DateTime;
  readonly value!: T;

  /** @internal */
  constructor(found: StoreObject) {
    this.id = needed(found, "id", "string");
    this.version = needed(found, "version", "int");
    this.at = needed(found, "at", "datetime");
    Object.defineProperty(this, "value", { value: found.value, enumerable: false });
  }
}

/** A handle on a vault. Its seal is for a vault with a passphrase of its own. */
export class Vault extends Seal {
  private readonly db: Database;
  private readonly quoted: string;

  /** @internal */
  constructor(db: Database, name: string) {
    super(db.client, { ns: db.ns, db: db.db, vault: name });
    this.db = db;
    this.quoted = quoteName(name);
    hide(this, "db");
  }

  private async object(text: string, params: Params, options: VaultOptions): Promise<StoreObject> {
    const { reason, signal } = options;
    const answer = await this.db.script(text, params, { ...(reason === undefined ? {} : { reason }), signal });
    return needed({ answer: answer.value }, "answer", "object");
  }

  /** Writes the next version of a record. `written` is false if the condition did not hold. */
  async write(id: string, value: unknown, options: WriteOptions = {}): Promise<{ written: boolean; version: number }> {
    const { ifAbsent, expectVersion } = options;
    const clause = expectVersion !== undefined ? " EXPECT VERSION $expect" : ifAbsent ? " IF ABSENT" : "";
    const params = { id, value, ...(expectVersion === undefined ? {} : { expect: expectVersion }) };
    const found = await this.object(`WRITE $id IN VAULT ${this.quoted} VALUE $value${clause}`, params, options);
    return { written: needed(found, "written", "boolean"), version: needed(found, "version", "int") };
  }

  /** Returns the value of a record. The access is audited before it is answered. */
  async reveal<T = Value>(id: string, options: RevealOptions = {}): Promise<Revealed<T>> {
    const { version } = options;
    const text = `REVEAL $id FROM VAULT ${this.quoted}${version === undefined ? "" : " VERSION $version"}`;
    return new Revealed<T>(await this.object(text, version === undefined ? { id } : { id, version }, options));
  }

  /** Returns ids in the order of their bytes. */
  async list(options: ListOptions = {}): Promise<string[]> {
    const { prefix = "", after = "", limit = 1000 } = options;
    const text = `LIST FROM VAULT ${this.quoted} PREFIX $prefix AFTER $after LIMIT $limit`;
    return strings(await this.object(text, { prefix, after, limit }, options), "ids");
  }

  /** Erases a record with all of its versions, and returns true if it existed. */
  async erase(id: string, options: VaultOptions = {}): Promise<boolean> {
    return needed(await this.object(`ERASE $id FROM VAULT ${this.quoted}`, { id }, options), "erased", "boolean");
  }

  /** Returns the answer of INFO FOR VAULT. */
  info(options: CallOptions = {}): Promise<StoreObject> {
    return this.object(`INFO FOR VAULT ${this.quoted}`, {}, options);
  }

  /** Returns entries of the audit trail, newest first, before a sequence if one is given. */
  audit(limit: number, options: CallOptions & { before?: number } = {}): Promise<StoreObject[]> {
    const { before, signal } = options;
    const page = before === undefined ? "" : " BEFORE $before";
    const text = `INFO FOR AUDIT OF VAULT ${this.quoted}${page} LIMIT $limit`;
    const params: Params = before === undefined ? { limit } : { limit, before };
    return this.db.script(text, params, { signal }).then((answer) => needed({ answer: answer.value }, "answer", "array") as StoreObject[]);
  }
}

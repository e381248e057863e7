/** Client of storenode over its wire protocol. */

export type { Answer, Result } from "./answers.js";
export type { BackupFile, BackupOptions, BackupSink } from "./backups.js";
export type { Cache, KeysOptions, Lease, LockOptions, SetOptions } from "./cache.js";
export { type Client, type ClientOptions, type Database, open } from "./client.js";
export type { TlsOptions, Welcome } from "./connection.js";
export { Closed, isRefused, OutcomeUnknown, ProtocolBroken, type RefusalFields, Refused, StoreError, Unreachable } from "./errors.js";
export type { Change, Commit } from "./feeds.js";
export type { Consumer, ConsumerOptions, Delivery, Group, NackOptions, Settled, TakeOptions } from "./groups.js";
export type { Copied, Mirror, MirrorOptions } from "./mirrors.js";
export type { Moment, MomentOptions } from "./moments.js";
export type { ConnectionEvent } from "./nodes.js";
export type { CallOptions, Params, PlacedRunOptions, RowsOptions, Runner, RunOptions } from "./runner.js";
export * as search from "./search.js";
export type { Position } from "./seen.js";
export { type Code, VERSION } from "./tables.js";
export type { Message, MessagesOptions, Place, PublishManyOptions, PublishOptions, Reader, ReadOptions, Topic } from "./topics.js";
export type { Transaction } from "./transactions.js";
export {
  DateTime,
  Decimal,
  Duration,
  type DurationLike,
  Float,
  NONE,
  type None,
  quoteName,
  RecordId,
  type RecordKey,
  type StoreObject,
  Uuid,
  type Value,
  ValueError,
} from "./values.js";
export type { ListOptions, Revealed, RevealOptions, Seal, Vault, VaultOptions, WriteOptions } from "./vaults.js";
export type { Watch, WatchOptions } from "./watches.js";

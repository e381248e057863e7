import type { Client } from "./client.js";
import type { Connection } from "./connection.js";
import { isBehind, NotSent, OutcomeUnknown, Refused, Unreachable } from "./errors.js";
import type { StoreNode } from "./nodes.js";
import { type Backoff, retryBackoff } from "./waits.js";

/** Connections that may end under one request before it is given up. */
export const BREAKS_MOST = 8;

export interface How {
  repeatable?: boolean;
  /** Any node may be asked that shows all that this client has seen. */
  spread?: boolean;
  /** Node to be asked while its connection stands. */
  at?: StoreNode | undefined;
  /** Ends the request: it is not asked again then. */
  stop?: AbortSignal | undefined;
  signal?: AbortSignal | undefined;
}

/** Attempts of one request: again is asked only what did not happen, or does no harm twice. */
export class Attempts {
  /** True while any node may be asked. */
  spread: boolean;

  private pauses: Backoff | undefined;
  private signedInAgain = false;
  private turnedAwayAt = 0;
  private breaks = 0;
  private refused: StoreNode[] = [];
  private inCluster = false;
  private searchingUntil = 0;

  constructor(
    private readonly client: Client,
    private readonly how: How,
  ) {
    this.spread = how.spread === true;
  }

  private get pause(): Backoff {
    this.pauses ??= retryBackoff();
    return this.pauses;
  }

  private next(): StoreNode | Promise<StoreNode> {
    const { nodes } = this.client;
    const { at, signal } = this.how;
    if (at?.usable) return at;
    if (this.spread) return nodes.near(signal);
    return nodes.home?.usable && !nodes.isClosed ? nodes.home : nodes.findHome(signal);
  }

  /** Works on a usable connection, and on another one where the request never began. */
  async do<T>(work: (node: StoreNode, conn: Connection) => Promise<T>): Promise<T> {
    const { signal, repeatable } = this.how;
    for (;;) {
      signal?.throwIfAborted();
      const next = this.next();
      const node = next instanceof Promise ? await next : next;
      const conn = node.usable;
      if (!conn) {
        await this.onNotSent(node); // it has ended in this moment
        continue;
      }
      const { session } = conn;
      try {
        return await work(node, conn);
      } catch (error) {
        if (error instanceof NotSent) await this.onNotSent(node);
        else if (!signal?.aborted) await this.onError(error, node, conn, session);
        else throw repeatable && isUnknown(error) ? signal.reason : error;
      }
    }
  }

  /** Throws what the caller gets if the request is not asked again. */
  private async onError(error: unknown, node: StoreNode, conn: Connection, session: number): Promise<void> {
    if (!(await this.isAskedAgain(error, node, conn, session))) throw error;
  }

  private async isAskedAgain(error: unknown, node: StoreNode, conn: Connection, session: number): Promise<boolean> {
    const { nodes } = this.client;
    const { repeatable } = this.how;
    if (!(error instanceof Refused)) return isUnknown(error) && repeatable === true && !conn.isUsable && this.isAskedBehindBreak();
    if (error.committed !== 0) return false;
    if (error.code === "UnknownOutcome") return repeatable === true && this.isAskedElsewhere(error, node);
    if (error.code === "SessionEnded" && nodes.settings.credential.user !== undefined && !this.signedInAgain) {
      this.signedInAgain = true;
      await conn.signInAgain(nodes.settings.credential, session);
      return true;
    }
    if (error.code === "Draining" && conn.isLeaving) return this.isAskedBehindBreak();
    if (this.spread && nodes.home !== node) return this.isAskedAtHome(error, node);
    return (error.code === "Draining" || error.code === "NotWritable") && this.isAskedElsewhere(error, node);
  }

  /** The connection had ended before anything was written. One such end says nothing. */
  private async onNotSent(node: StoreNode): Promise<void> {
    const { connectTimeout } = this.client.nodes;
    const now = performance.now();
    if (this.turnedAwayAt === 0) this.turnedAwayAt = now;
    else if (now - this.turnedAwayAt < connectTimeout) await this.pause.wait(this.how.signal);
    else {
      const said = `${node.address} ended each connection for ${connectTimeout} ms before anything was sent`;
      throw new Unreachable(said, { cause: node.conn?.cause });
    }
  }

  /** Asks at once after the first break. With every other it is likelier that the request causes it. */
  private async isAskedBehindBreak(): Promise<boolean> {
    this.breaks++;
    if (this.breaks > BREAKS_MOST) return false;
    if (this.breaks > 1) await this.pause.wait(this.how.signal, this.how.stop);
    return true;
  }

  /** A read that was refused elsewhere is home's to answer, unless it would end there likewise. */
  private isAskedAtHome(error: Refused, node: StoreNode): boolean {
    if (isBehind(error) || error.retry) this.client.nodes.rest(node);
    if (error.code === "Cancelled" || error.code === "AnswerTooLarge") return false;
    if (error.code === "StatementTimeout" && !isBehind(error)) return false;
    this.spread = false;
    return true;
  }

  /** Looks for the node that takes changes. A cluster may have none for a moment. */
  private async isAskedElsewhere(error: Refused, node: StoreNode): Promise<boolean> {
    const { nodes } = this.client;
    if (this.how.stop?.aborted || !nodes.areSeveral) return false;
    this.searchingUntil ||= performance.now() + nodes.connectTimeout;
    this.inCluster ||= "leader" in error.detail;
    nodes.onRefusedBy(node, error.detail.leader);
    if (!this.refused.includes(node)) {
      this.refused.push(node);
      return true;
    }
    if (!this.inCluster || performance.now() >= this.searchingUntil) return false;
    this.refused = [];
    await this.pause.wait(this.how.signal, this.how.stop);
    return true;
  }
}

function isUnknown(error: unknown): boolean {
  return error instanceof OutcomeUnknown;
}

/** Position of a reader in the log. Keep all three fields to resume. */
export interface Position {
  /** Last handled commit, or a later one that does not change the table; 0 is the start of the log. */
  seq: number;
  /** History of `seq`; undefined: whatever the node has. */
  store?: string | undefined;
  epoch?: number | undefined;
}

/** State at the time when something was asked. */
export interface Mark {
  /** Number of changes whose sequence is unknown. */
  untold: number;
  /** Newest known commit. */
  seq: number;
}

/** Newest commit that a client knows, so that another node shows it nothing older. */
export class Seen {
  private position: Position | undefined;
  /** False if the epoch of the position may be a later one than its commit's. */
  private isOfEpoch = false;
  private untold = 0;
  private covered = 0;

  /** Sequence that a read has to show; 0: any will do. */
  get after(): number {
    return this.position?.seq ?? 0;
  }

  /** True if `after` covers everything that this client has done. */
  get isWhole(): boolean {
    return this.covered === this.untold;
  }

  /** Records that there may be a change of this client with an unknown sequence. */
  miss(): void {
    this.untold++;
  }

  mark(): Mark {
    return { untold: this.untold, seq: this.after };
  }

  /** Records an answer. `asked` is given of an answer of the leader alone. */
  onAnswer(position: Position, asked?: Mark): void {
    if (this.isNewer(position, asked)) {
      this.position = position;
      this.isOfEpoch = true;
    }
    if (asked) this.covered = Math.max(this.covered, asked.untold);
  }

  /** Records a commit of the same history. */
  reach(seq: number, epoch?: number): void {
    if (this.position && seq <= this.position.seq) return;
    this.position = { ...this.position, seq };
    if (epoch) this.position.epoch = epoch;
    this.isOfEpoch = epoch !== undefined && epoch > 0;
  }

  /** True if a position is newer. That of a later history is, however low its sequence. */
  private isNewer(position: Position, asked: Mark | undefined): boolean {
    const before = this.position;
    if (!before || position.store !== before.store || position.seq > before.seq) return true;
    if (!position.epoch || !before.epoch || position.epoch < before.epoch) return false;
    if (position.seq === before.seq || position.epoch === before.epoch) return position.seq === before.seq;
    // The leader has changed. In one history a later epoch has the higher sequences: this is another one if
    // the known commit is of the earlier epoch, or was known when this was asked.
    return this.isOfEpoch || (asked !== undefined && asked.seq >= before.seq);
  }

  /** True if an answer is of another store than the leader's. */
  isForeign(store: string | undefined): boolean {
    const known = this.position?.store;
    return known !== undefined && store !== undefined && known !== store;
  }
}

const FIRST_WORD = /^(?:\s|--[^\n]*|\/\/[^\n]*|#[^\n]*|\/\*[\s\S]*?\*\/)*([A-Za-z_]+)/;

/** True if a script begins like one that only reads. */
export function seemsToRead(script: string): boolean {
  const word = FIRST_WORD.exec(script)?.[1]?.toUpperCase();
  return word === "SELECT" || word === "RETURN" || word === "READ";
}

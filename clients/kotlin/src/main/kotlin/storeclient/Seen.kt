package storeclient

/**
 * Position of a reader in the log. Keep all three fields to resume.
 *
 * @property seq last handled commit, or a later one that does not change the table; 0 is the start of the log
 * @property store history of [seq]; null: any
 * @property epoch epoch of [seq]; null: not known
 */
public data class Position(val seq: Long, val store: String? = null, val epoch: Long? = null)

/** State at the time of a request: the number of changes with an unknown sequence, and the newest known commit. */
internal class Mark(val untold: Long, val seq: Long)

/** Newest commit that a client knows, so that another node shows it nothing older. */
internal class Seen {
    private var position: Position? = null

    /** False if the epoch of the position may be a later one than its commit's. */
    private var isOfEpoch = false
    private var untold = 0L
    private var covered = 0L

    /** Sequence that a read has to show; 0: any will do. */
    val after: Long @Synchronized get() = position?.seq ?: 0

    /** True if [after] covers everything that this client has done. */
    val isWhole: Boolean @Synchronized get() = covered == untold

    /** Records that there may be a change of this client with an unknown sequence. */
    @Synchronized
    fun miss() {
        untold++
    }

    @Synchronized
    fun mark(): Mark = Mark(untold, after)

    /** Records an answer. [asked] is given of an answer of the leader alone. */
    @Synchronized
    fun onAnswer(found: Position, asked: Mark? = null) {
        if (isNewer(found, asked)) {
            position = found
            isOfEpoch = true
        }
        if (asked != null) covered = maxOf(covered, asked.untold)
    }

    /** Records a commit of the same history. */
    @Synchronized
    fun reach(seq: Long, epoch: Long? = null) {
        val before = position
        if (before != null && seq <= before.seq) return
        position = Position(seq, before?.store, epoch ?: before?.epoch)
        isOfEpoch = epoch != null
    }

    /** True if a position is newer. That of a later history is, however low its sequence. */
    private fun isNewer(found: Position, asked: Mark?): Boolean {
        val before = position
        if (before == null || found.store != before.store || found.seq > before.seq) return true
        val epoch = found.epoch
        val known = before.epoch
        if (epoch == null || known == null || epoch < known) return false
        if (found.seq == before.seq || epoch == known) return found.seq == before.seq
        // The leader has changed. In one history a later epoch has the higher sequences: this is another one if
        // the known commit is of the earlier epoch, or was known when this was asked.
        return isOfEpoch || (asked != null && asked.seq >= before.seq)
    }

    /** True if an answer is of another store than the leader's. */
    @Synchronized
    fun isForeign(store: String?): Boolean {
        val known = position?.store
        return known != null && store != null && known != store
    }
}

private val FIRST_WORD = Regex("^(?:\\s|--[^\\n]*|//[^\\n]*|#[^\\n]*|/\\*.*?\\*/)*+([A-Za-z_]+)", RegexOption.DOT_MATCHES_ALL)
private val READS = setOf("SELECT", "RETURN", "READ")

/** True if a script begins like one that only reads. */
internal fun seemsToRead(script: String): Boolean = FIRST_WORD.find(script)?.groupValues?.get(1)?.uppercase() in READS

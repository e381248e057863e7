package storeclient

import kotlinx.coroutines.Job
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow

private const val COPY_AGAIN = "read the table again, and watch it from the position of that answer"

/** Advice about what ends a watch. */
private val ADVICE =
    mapOf(
        Code.LOG_PRUNED to COPY_AGAIN,
        Code.DIVERGED to COPY_AGAIN,
        Code.UNKNOWN to "its name stands for another table now: $COPY_AGAIN",
        Code.NOT_ALLOWED to "once READ is granted again, go on from the position",
        Code.SESSION_ENDED to "with a client of another token, go on from the position",
    )
private val OWN_ADVICE = Regex(": (?:copy anew|sign in again)$")

internal class WatchOptions(val table: String, val where: String?, val actions: Set<Action>?, val before: Boolean)

/**
 * Follows the changes of a table. It resumes by itself after a broken connection, with a node that restarts or is busy,
 * and after falling behind: it skips no commit and repeats none. An error that ends it says what to do.
 */
public class Watch internal constructor(private val db: Database, private val options: WatchOptions, from: Position?) {
    /** Called when nothing has changed up to a position. */
    internal var onMove: ((Position) -> Unit)? = null

    /** True if a node that is away is waited for: once the feed has begun. */
    internal var isPatient = false
    internal val stopping = Job()

    /**
     * Position to resume from; null if the watch has not begun. It moves past a commit when the next one is asked for: a
     * reader that is killed while it handles a commit gets that commit again.
     */
    @Volatile
    public var position: Position? = from
        private set

    /** Ends the collection after the current commit. */
    public fun stop() {
        stopping.cancel()
    }

    /** Returns the commits that change the table, from [position] on. */
    public fun commits(): Flow<Commit> =
        flow {
            val following = Following(this@Watch, position)
            try {
                while (true) {
                    val commit = following.next() ?: break
                    emit(commit)
                    move(commit.position, isReported = false)
                }
            } finally {
                following.leave()
            }
        }

    /** Returns the changes of the table one by one. */
    public fun changes(): Flow<Change> = flow { commits().collect { commit -> commit.changes.forEach { emit(it) } } }

    internal fun move(to: Position, isReported: Boolean) {
        position = to
        if (isReported) onMove?.invoke(to)
    }

    internal suspend fun open(at: Position?): Pair<Feed, Row> {
        val body =
            Body(
                "ns", db.ns, "db", db.db, "table", options.table, "where", options.where,
                "actions", options.actions?.map { it.name.lowercase() }, "before", options.before.takeIf { it },
                "from", at?.seq, "store", at?.store, "epoch", at?.epoch?.takeIf { it > 0 },
            )
        return openFeed(db.client, body, stopping)
    }
}

/** One collection of a watch: the feed, opened again wherever it ended. */
private class Following(private val watch: Watch, private var at: Position?) {
    private var feed: Feed? = null
    private var opened: Row = emptyMap()
    private val parts = ArrayList<Row>()
    private val pause = retryBackoff()

    /** True if the feed has sent something since it began. */
    private var hasHeard = true

    /** Returns the next commit; null: the watch was stopped. */
    suspend fun next(): Commit? {
        while (!watch.stopping.isStopped) {
            try {
                val feed = feed
                if (feed == null) {
                    open()
                } else {
                    val body = feed.next()
                    if (body == null) leave() else take(body)?.let { return it }
                }
            } catch (error: StoreException) {
                if (!watch.stopping.isStopped) onError(error)
            }
        }
        return null
    }

    /** Leaves the feed. Parts of a commit that is not whole come again. */
    fun leave() {
        feed?.leave()
        feed = null
        parts.clear()
    }

    private suspend fun open() {
        if (!hasHeard) pause.pause(watch.stopping)
        if (watch.stopping.isStopped) return
        hasHeard = false
        val (found, first) = watch.open(at)
        feed = found
        opened = first
        if (first["type"] != "open") throw broken("a feed of the node does not say how it begins")
        first.needed<String>("store")
        first.needed<Long>("seq")
        val begin = place(first.needed("start"), first.optional("start_epoch"))
        at = begin
        watch.isPatient = true
        watch.move(begin, isReported = true)
    }

    /** The feed is over, or did not begin. Throws what cannot go on by itself. */
    private suspend fun onError(error: StoreException) {
        val hadBegun = feed != null
        leave()
        if (hadBegun && (error.isRefused(Code.TOO_SLOW) || error.isRefused(Code.SESSION_ENDED))) return
        val passes = error is Refusal && (error.retry || error.isBehind())
        if (!(watch.isPatient || passes) || !error.isOutage()) {
            throw if (error is RefusedException) advised(error, watch.isPatient) else error
        }
        if (hadBegun) return
        hasHeard = true
        pause.pause(watch.stopping)
    }

    private fun take(body: Row): Commit? {
        val to = place(body.needed("seq"), body.optional("epoch"))
        hasHeard = true
        pause.reset()
        if (body["type"] != "commit") {
            // `caught_up` or `beat`: the caller has asked for more, so everything before is handled.
            at = to
            watch.move(to, isReported = true)
            return null
        }
        parts.add(body)
        if (!isWhole(body)) return null
        val commit = readCommit(parts, to)
        parts.clear()
        at = to
        return commit
    }

    /** Returns the position at a sequence. A node before minor 9 sends no epochs. */
    private fun place(seq: Long, epoch: Long?): Position {
        val store = opened["store"] as? String
        if (epoch != null) return Position(seq, store, epoch)
        val newest = opened.optional<Long>("epoch")
        val upTo = opened.needed<Long>("seq")
        val before = at
        if (before?.seq == seq && before.epoch != null) return Position(seq, store, before.epoch)
        val isKnown = seq == upTo || (before?.epoch != null && before.epoch == newest && seq <= upTo)
        return Position(seq, store, if (isKnown) newest else null)
    }
}

private fun advised(error: RefusedException, isKnown: Boolean): RefusedException {
    val advice = ADVICE[error.code]
    val isSure = isKnown || error.code == Code.LOG_PRUNED || error.code == Code.DIVERGED || "created" in error.detail
    if (advice == null || !isSure) return error
    return RefusedException(error.fields.copy(text = "${OWN_ADVICE.replace(error.text, "")}: $advice"), error.cause)
}

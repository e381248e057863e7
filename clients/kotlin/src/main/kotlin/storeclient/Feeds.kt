package storeclient

import kotlinx.coroutines.Job
import kotlinx.coroutines.withTimeoutOrNull
import java.time.Instant
import kotlin.time.Duration

/** Bytes of whole commits that have come and were not asked for: with more the feed is ended and opened again. */
private const val BEHIND_MOST = 4 shl 20

/** A WATCH on one connection, until it is over. */
internal class Feed(private val conn: Connection, private val stop: Job, private val onSeq: (Long, Long?) -> Unit) :
    Call(Kind.WATCH, waits = true) {
    private val messages = ArrayDeque<Pair<Row, Int>>()
    private var bytes = 0L

    /** Bytes up to the end of the last whole commit. */
    private var whole = 0L

    /** True once the node was asked to end the feed since nobody reads it. */
    private var isEnding = false
    private var isOver = false
    private var failure: Throwable? = null
    private val news = News()

    override fun onMessage(body: Row, size: Int): Boolean {
        synchronized(messages) {
            messages.add(body to size)
            bytes += size
            if (isWhole(body)) {
                whole = bytes
                (body["seq"] as? Long)?.let { onSeq(it, body["epoch"] as? Long) }
            }
            if (whole > BEHIND_MOST && !isEnding) {
                isEnding = true
                conn.exchange.sendEnd(this)
            }
        }
        news.announce()
        return true
    }

    override fun settle(reply: Any?, error: Throwable?) {
        synchronized(messages) {
            isOver = true
            failure = error
        }
        news.announce()
    }

    private val handle = stop.invokeOnCompletion { news.announce() }

    /** Returns the next message of the feed; null: it is over as it was asked, or it was stopped. */
    suspend fun next(): Row? {
        while (true) {
            synchronized(messages) {
                if (stop.isStopped) return null
                messages.removeFirstOrNull()?.let { (body, size) ->
                    bytes -= size
                    whole = maxOf(whole - size, 0)
                    return body
                }
                if (isOver) return failure?.let { throw it }
            }
            news.await { synchronized(messages) { stop.isStopped || messages.isNotEmpty() || isOver } }
        }
    }

    /** Ends a feed that nobody reads any more. */
    fun leave() {
        handle.dispose()
        conn.exchange.giveUp(this)
    }
}

/** True if a message ends a commit: it is all of it, or its last part. */
internal fun isWhole(body: Row): Boolean = body["part"] == body["of"]

/** Opens a feed, and returns it with its first message. Asking twice does no harm. */
internal suspend fun openFeed(client: Client, body: Body, stop: Job): Pair<Feed, Row> {
    val tries = Attempts(client, How(isRepeatable = true, spread = client.readsAnywhere, stop = stop))
    val nodes = client.nodes
    return tries.run { node, conn ->
        checkKnown(conn, Kind.WATCH, body)
        val after = client.seen.after
        val isHome = nodes.home === node
        var sent = body
        if (nodes.areSeveral && conn.welcome.minor >= MINOR_OF_SEQUENCES) {
            if (after > 0 && !isHome) sent = body.with("after", after)
        } else if (nodes.areSeveral && conn.welcome.minor >= MINOR_OF_AFTER) {
            reach(conn, maxOf(after, body["from"] as? Long ?: 0), isHome)
        }
        begin(client, Feed(conn, stop) { seq, epoch -> client.seen.reach(seq, epoch) }, conn, sent)
    }
}

private suspend fun begin(client: Client, feed: Feed, conn: Connection, body: Body): Pair<Feed, Row> {
    conn.begin(feed, packBody(body))
    var isOpen = false
    try {
        val limit = client.timeout?.plus(client.grace) ?: Duration.INFINITE
        val opened = withTimeoutOrNull(limit) { listOf(feed.next()) } ?: throw unsure("the feed did not begin in time")
        isOpen = true
        return feed to (opened[0] ?: throw broken("a feed of the node ended before it began"))
    } finally {
        if (!isOpen) feed.leave()
    }
}

/** Waits until a node before minor 8 shows a position: its feeds do not wait for it. */
private suspend fun reach(conn: Connection, seq: Long, isHome: Boolean) {
    if (seq == 0L) return
    try {
        conn.ask(Request(Kind.RUN, Body("script", "", "after", seq)))
    } catch (error: RefusedException) {
        if (!isHome || error.code != Code.STATEMENT_TIMEOUT) throw error // WATCH has words for another history
    }
}

/** Kind of a change. */
public enum class Action {
    /** A record was created, or begins to meet the condition of the watch. */
    CREATE,

    /** A record was changed. */
    UPDATE,

    /** A record was deleted, or ceases to meet the condition of the watch. */
    DELETE,
}

/** Cause of a missing record before a commit. */
public enum class Missing {
    /** It is no longer in the log. */
    PRUNED,

    /** It is too large. */
    OMITTED,
}

/**
 * The change of one record by a commit.
 *
 * @property action kind of the change
 * @property id id of the record
 * @property value the record after the commit; null if it was deleted
 * @property before the record before the commit; null without `before`, if it did not exist, or if it is [missing]
 * @property missing cause of a missing record before the commit
 */
public data class Change(val action: Action, val id: RecordId, val value: Row?, val before: Row?, val missing: Missing?)

/**
 * All that one commit changed in a table.
 *
 * @property seq sequence of the commit
 * @property at time of the commit
 * @property by user; null if the reader may not see it
 * @property reason reason that the commit was given
 * @property changes changes of the table's records
 * @property position position behind the commit. Store it together with the effect of the commit
 */
public data class Commit(
    val seq: Long,
    val at: Instant,
    val by: String?,
    val reason: String?,
    val changes: List<Change>,
    val position: Position,
)

/** Reads a commit of all its parts. */
internal fun readCommit(parts: List<Row>, position: Position): Commit {
    for ((n, part) in parts.withIndex()) {
        val isAlone = parts.size == 1 && part["of"] == null
        if (!isAlone && (part["of"] != parts.size.toLong() || part["part"] != n + 1L || part["seq"] != position.seq)) {
            throw broken("the parts of a commit do not belong together")
        }
    }
    val head = parts.first()
    val changes = parts.flatMap { part -> part.needed<List<*>>("changes").map(::readChange) }
    return Commit(position.seq, head.needed("at"), head["by"] as? String, head["reason"] as? String, changes, position)
}

private fun readChange(found: Any?): Change {
    val one = asRow(found) ?: throw misfit("a change", found, "Map")
    val name = one.needed<String>("action")
    return Change(
        action = Action.entries.find { it.name.equals(name, ignoreCase = true) } ?: throw broken("the node sent the action $name"),
        id = one.needed("id"),
        value = asRow(one["value"]),
        before = asRow(one["before"]),
        missing =
        when {
            one["before_pruned"] == true -> Missing.PRUNED
            one["before_omitted"] == true -> Missing.OMITTED
            else -> null
        },
    )
}

package storeclient

import kotlinx.coroutines.Job
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.withContext
import java.time.Instant
import kotlin.time.Duration
import kotlin.time.Duration.Companion.minutes

/** Messages that a reader asks for at once; the most a node gives. */
private const val READ_PAGE = 1000

/** Time for which one read of a reader that follows waits. */
private val LONGEST_WAIT = 1.minutes

/**
 * A message of a topic.
 *
 * @property position position in the topic, from 1
 * @property at time of its commit
 * @property key groups ordered by key deliver messages of one key in order
 * @property id id, as published
 * @property headers headers, as published
 * @property value value of the message
 * @property bytes size in the store
 * @property due earliest delivery to groups, of a delayed message
 */
public open class Message internal constructor(
    public val position: Long,
    public val at: Instant,
    public val key: String?,
    public val id: String?,
    public val headers: Map<String, String>,
    public val value: Any?,
    public val bytes: Long,
    public val due: Instant?,
) {
    internal constructor(found: Row) : this(
        position = found.needed("position"),
        at = found.needed("at"),
        key = found.optional("key"),
        id = found.optional("id"),
        headers = found.neededRow("headers").mapValues { (name, text) -> text as? String ?: throw misfit(name, text, "String") },
        value = if ("value" in found) found["value"] else throw misfit("value", null, "a value"),
        bytes = found.needed("bytes"),
        due = found.optional("due"),
    )

    override fun toString(): String = "Message(position=$position, key=$key, value=$value)"
}

internal fun readMessage(found: Any?): Message = Message(asRow(found) ?: throw misfit("a message", found, "Map"))

/**
 * Answer to a published message.
 *
 * @property position position of the message in the topic
 * @property duplicate true if a message with the same id was there before: then [position] is that one's
 */
public data class Published(val position: Long, val duplicate: Boolean)

/** A place in a topic. */
public sealed class Place {
    /** Behind a position, which counts as read; 0 is the start. */
    public data class At(val position: Long) : Place()

    /** The first message of a time or later. */
    public data class Since(val time: Instant) : Place()

    /** Behind the last message. */
    public data object End : Place()
}

/**
 * A handle on a topic.
 *
 * @property name name of the topic
 */
public class Topic internal constructor(internal val database: Database, public val name: String) {
    internal val quoted = quoteName(name)

    internal suspend fun ask(op: String, fields: List<Any?>, wait: Duration? = null, stop: Job? = null): Row {
        val client = database.client
        val timeout = client.timeout?.plus(wait ?: Duration.ZERO)
        val body = Body("op", op, "ns", database.ns, "db", database.db, "topic", name, "timeout", timeout, *fields.toTypedArray())
        return client.change(Request(Kind.TOPIC, body, timeout?.plus(client.grace), wait != null, stop), How(stop = stop))
    }

    internal suspend fun value(text: String, params: Row, isRepeatable: Boolean, wait: Duration? = null): Any? {
        val timeout = database.client.timeout?.plus(wait ?: Duration.ZERO)
        return database.script(text, params, ScriptOptions(timeout = timeout, isRepeatable = isRepeatable, waits = wait != null)).value
    }

    internal suspend fun page(text: String, params: Row, wait: Duration?): List<Message> {
        val found =
            if (wait == null || wait == Duration.ZERO) {
                value(text, params, isRepeatable = true)
            } else {
                value("$text WAIT \$wait", params + ("wait" to positive(wait, "wait")), isRepeatable = true, wait)
            }
        return (found as? List<*> ?: throw broken("the node answered READ with no messages")).map(::readMessage)
    }

    /**
     * Appends a message. It is durable when the call returns.
     *
     * @param key groups ordered by key deliver messages of one key in order
     * @param id a second message with that id within the topic's DEDUP window is not appended
     * @param delay time before the delivery to groups
     * @param at time of the delivery to groups
     * @param expect refuse with [Code.ASSERT_FAILED] unless this is the position of the topic's last message
     */
    public suspend fun publish(
        value: Any?,
        key: String? = null,
        id: String? = null,
        headers: Map<String, String>? = null,
        delay: Duration? = null,
        at: Instant? = null,
        expect: Long? = null,
    ): Published {
        val found = ask("publish", listOf("value", Given(value), "id", id) + publishing(key, headers, delay, at, expect))
        return Published(found.needed("position"), found.needed("duplicate"))
    }

    /** Appends messages in one commit, and returns their positions. The arguments are those of [publish]. */
    public suspend fun publishMany(
        values: List<Any?>,
        key: String? = null,
        headers: Map<String, String>? = null,
        delay: Duration? = null,
        at: Instant? = null,
        expect: Long? = null,
    ): LongRange {
        val found = ask("publish", listOf("values", values) + publishing(key, headers, delay, at, expect))
        return found.needed<Long>("first")..found.needed<Long>("last")
    }

    private fun publishing(key: String?, headers: Map<String, String>?, delay: Duration?, at: Instant?, expect: Long?): List<Any?> =
        listOf("key", key, "headers", headers, "delay", delay, "at", at, "expect", expect)

    /**
     * Returns messages behind a position, oldest first. The node also ends a page at 8 MiB.
     *
     * @param after position behind which to read; 0: the start
     * @param limit 1 to 1000 messages
     * @param wait time to wait for the first message, at most five minutes
     */
    public suspend fun read(after: Long = 0, limit: Int = READ_PAGE, wait: Duration? = null): List<Message> =
        page("READ FROM $quoted AFTER \$after LIMIT \$limit", mapOf("after" to after, "limit" to limit), wait)

    /**
     * Returns the messages behind a position, to the end of the topic.
     *
     * @param follow go on for ever, through outages
     */
    public fun messages(after: Long = 0, follow: Boolean = false): Flow<Message> =
        flow {
            var done = after
            eachMessage(follow, { read(done, wait = it) }, { done = it }) { emit(it) }
        }

    /** Returns a handle on a reader: a position in the topic that the node keeps. */
    public fun reader(name: String): Reader = Reader(this, name)

    /** Returns a handle on a consumer group. */
    public fun group(name: String): Group = Group(this, name)

    /** Returns the answer of INFO FOR TOPIC. */
    public suspend fun info(): Row = infoOf(value("INFO FOR TOPIC $quoted", emptyMap(), isRepeatable = true))

    override fun toString(): String = "topic $name of $database"
}

internal fun infoOf(found: Any?): Row = asRow(found) ?: throw misfit("INFO", found, "Map")

/** A named position in a topic, which the node keeps. */
public class Reader internal constructor(private val topic: Topic, name: String) {
    private val quoted = quoteName(name)
    private val on = "$quoted ON ${topic.quoted}"

    private suspend fun move(text: String, to: Place?) {
        when (to) {
            null -> topic.value(text, emptyMap(), isRepeatable = false)
            Place.End -> topic.value("${text}END", emptyMap(), isRepeatable = false)
            is Place.At -> topic.value("$text\$at", mapOf("at" to to.position), isRepeatable = false)
            is Place.Since -> topic.value("${text}TIME \$at", mapOf("at" to to.time), isRepeatable = false)
        }
    }

    /** Declares the reader if it does not exist: at the start of the topic, or at a place. */
    public suspend fun define(at: Place? = null): Unit = move("DEFINE READER IF NOT EXISTS $on${if (at == null) "" else " AT "}", at)

    /** Returns messages behind the reader's position, without moving it. */
    public suspend fun read(limit: Int = READ_PAGE, wait: Duration? = null): List<Message> =
        topic.page("READ FROM ${topic.quoted} AS $quoted LIMIT \$limit", mapOf("limit" to limit), wait)

    /** Moves the reader behind a position. */
    public suspend fun commit(position: Long): Unit = move("COMMIT READER $on AT ", Place.At(position))

    /** Moves the reader to a place. */
    public suspend fun move(to: Place): Unit = move("ALTER READER $on SET POSITION ", to)

    /**
     * Returns the messages behind the reader's position. The position is committed after each page and when the
     * collection ends, so an interrupted reader gets messages of its last page again.
     *
     * @param follow go on for ever, through outages
     */
    public fun messages(follow: Boolean = false): Flow<Message> = flow { eachMessage(follow, { read(wait = it) }, ::commit) { emit(it) } }

    /** Drops the reader. */
    public suspend fun drop(): Unit = move("DROP READER $on", null)
}

/** Emits the messages of page after page, and calls [onDone] with each position behind a page, or where the collector leaves. */
private suspend fun eachMessage(
    follow: Boolean,
    read: suspend (Duration?) -> List<Message>,
    onDone: suspend (Long) -> Unit,
    emit: suspend (Message) -> Unit,
) {
    val patience = Patience(follow)
    while (true) {
        val page = patience.throughOutages { read(if (follow) LONGEST_WAIT else null) }
        if (page.isEmpty()) if (follow) continue else return
        var done = 0L
        var isWhole = false
        try {
            for (one in page) {
                emit(one)
                done = one.position
            }
            isWhole = true
        } finally {
            if (!isWhole && done > 0) withContext(NonCancellable) { commitLast(done, onDone) }
        }
        patience.throughOutages { onDone(done) }
    }
}

/** Commits where a collection ends early. Where that fails the messages are read again. */
private suspend fun commitLast(done: Long, onDone: suspend (Long) -> Unit) {
    try {
        onDone(done)
    } catch (_: StoreException) {
        return
    }
}

/** Outages of a reader that follows: it outlives them once the node has answered. */
private class Patience(private val follow: Boolean) {
    private val pause = retryBackoff()
    private var wasAnswered = false

    suspend fun <T> throughOutages(call: suspend () -> T): T {
        while (true) {
            try {
                return call().also {
                    pause.reset()
                    wasAnswered = true
                }
            } catch (error: StoreException) {
                val isPatient = wasAnswered || (error is Refusal && error.retry)
                if (!follow || !isPatient || !error.isOutage()) throw error
            }
            pause.pause()
        }
    }
}

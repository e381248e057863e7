package storeclient

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Job
import kotlinx.coroutines.async
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.launch
import java.time.Instant
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.minutes
import kotlin.time.toKotlinDuration
import java.time.Duration as JavaDuration

/** Time for which one TAKE of a consumer waits at the node. */
private val TAKE_WAIT = 1.minutes

/** Messages of one TAKE. */
private const val TAKE_MOST = 1000

/** Receipts in one request. */
private const val RECEIPTS_MOST = 250

/** Extensions within a deadline. */
private const val EXTENSIONS = 3

/** Pause between two extensions, however short the group's deadline is. */
private val LEAST_PAUSE = 50.milliseconds

private const val PREFETCH = 32
private const val STATEMENTS_BEFORE = 3
private const val RECEIPT = "storeclient_receipt"
private const val STALE = "storeclient: the receipt is stale"
private const val GIVEN_BACK = "given back: its consumer stopped before it was worked on"

/**
 * Result of settling messages by their receipts.
 *
 * @property done number of messages that were settled
 * @property stale receipts that came too late: the message was delivered again, settled before, or is gone
 */
public data class Settled(val done: Int, val stale: List<String>)

/** How deliveries are settled: one by one, or with others. */
internal interface Owner {
    suspend fun ack(receipt: String): Boolean

    suspend fun done(receipt: String, script: String, params: Row): Answer?

    suspend fun settle(op: Settling, receipt: String, fields: List<Any?>): Boolean
}

internal enum class Settling(val op: String, val done: String) {
    ACK("ack", "acked"),
    NACK("nack", "nacked"),
    EXTEND("extend", "extended"),
    GIVE_UP("give_up", "given_up"),
}

/**
 * A message that was delivered to a member of a group.
 *
 * @property receipt argument of [Group.ack] and the like
 * @property attempt number of deliveries, this one included
 * @property deadline time from which another member may get the message, by the node's log time
 * @property member name of the consumer, as given
 */
public class Delivery internal constructor(found: Row, private val owner: Owner) : Message(found) {
    public val receipt: String = found.needed("receipt")
    public val attempt: Int = found.neededInt("attempt")
    public val deadline: Instant = found.needed("deadline")
    public val member: String? = found.optional("member")

    /**
     * Acknowledges the message, durably. False: it came too late, and another member may have the message. Of a
     * consumer, acknowledgements travel together and go through outages; [OutcomeUnknownException] means that the
     * connection broke and the message is settled, by this acknowledgement or by its deadline.
     */
    public suspend fun ack(): Boolean = owner.ack(receipt)

    /**
     * Runs a script and acknowledges the message in one transaction: the message takes effect exactly once. The script
     * has no BEGIN, COMMIT or CANCEL. Null: it came too late, and nothing was changed.
     */
    public suspend fun done(script: String, params: Map<String, Any?> = emptyMap()): Answer? = owner.done(receipt, script, params)

    /**
     * Returns the message to the group. False: it came too late.
     *
     * @param delay time before the next delivery, in the place of the group's backoff
     * @param error kept with the message, and in the headers of its dead letter
     */
    public suspend fun nack(delay: Duration? = null, error: String? = null): Boolean =
        owner.settle(Settling.NACK, receipt, listOf("delay", delay, "error", error))

    /** Sets the deadline to [by] from now. False: it came too late. */
    public suspend fun extend(by: Duration): Boolean = owner.settle(Settling.EXTEND, receipt, listOf("by", positive(by, "by")))

    /** Makes the message a dead letter. False: it came too late. */
    public suspend fun giveUp(error: String? = null): Boolean = owner.settle(Settling.GIVE_UP, receipt, listOf("error", error))
}

/**
 * A handle on a consumer group: its members share the messages of a topic. A message is delivered again if it is not
 * acknowledged before its deadline.
 *
 * @property name name of the group
 */
public class Group internal constructor(internal val topic: Topic, public val name: String) {
    private val quoted = quoteName(name)

    private inner class Single : Owner {
        override suspend fun ack(receipt: String) = ack(listOf(receipt)).done > 0

        override suspend fun done(receipt: String, script: String, params: Row) = this@Group.done(receipt, script, params)

        override suspend fun settle(op: Settling, receipt: String, fields: List<Any?>) = settle(op, listOf(receipt), fields).done > 0
    }

    /**
     * Takes messages.
     *
     * @param count 1 to 1000 messages
     * @param member name of the consumer in INFO FOR GROUP
     * @param wait time to wait for the first message, at most five minutes
     */
    public suspend fun take(count: Int = 1, member: String? = null, wait: Duration? = null): List<Delivery> =
        takeFor(Single(), count, member, wait?.takeIf { it != Duration.ZERO }?.let { positive(it, "wait") }, null)

    internal suspend fun takeFor(owner: Owner, count: Int, member: String?, wait: Duration?, stop: Job?): List<Delivery> {
        val found = topic.ask("take", listOf("group", name, "count", count, "member", member, "wait", wait), wait, stop)
        return found.needed<List<*>>("messages").map { Delivery(asRow(it) ?: throw misfit("a message", it, "Map"), owner) }
    }

    internal suspend fun settle(op: Settling, receipts: List<String>, fields: List<Any?>): Settled {
        val found = topic.ask(op.op, listOf("group", name, "receipts", receipts) + fields)
        return Settled(found.neededInt(op.done), found.strings("stale_receipts"))
    }

    /** Acknowledges messages by their receipts. */
    public suspend fun ack(receipts: List<String>): Settled = settle(Settling.ACK, receipts, emptyList())

    /** Returns messages to the group. The arguments are those of [Delivery.nack]. */
    public suspend fun nack(receipts: List<String>, delay: Duration? = null, error: String? = null): Settled =
        settle(Settling.NACK, receipts, listOf("delay", delay, "error", error))

    /** Sets the deadlines of messages to [by] from now. */
    public suspend fun extend(receipts: List<String>, by: Duration): Settled = settle(Settling.EXTEND, receipts, listOf("by", positive(by, "by")))

    /** Makes messages dead letters. */
    public suspend fun giveUp(receipts: List<String>, error: String? = null): Settled = settle(Settling.GIVE_UP, receipts, listOf("error", error))

    /** Runs a script and acknowledges a message in one transaction; see [Delivery.done]. */
    public suspend fun done(receipt: String, script: String, params: Map<String, Any?> = emptyMap()): Answer? {
        if (RECEIPT in params) throw ValueException("$$RECEIPT", "the client names its own parameter so")
        // On the line where the script begins, so that its lines keep their numbers.
        val before =
            "BEGIN; LET $${RECEIPT}_ack = ACK ${topic.quoted} AS $quoted RECEIPTS [$$RECEIPT]; " +
                "IF $${RECEIPT}_ack.stale > 0 { THROW '$STALE' }; "
        try {
            val answer = topic.database.script("$before$script\n;COMMIT", params + (RECEIPT to receipt), ScriptOptions(isRepeatable = true))
            return answer.withResults(within(answer.results, STATEMENTS_BEFORE))
        } catch (error: RefusedException) {
            if (error.code == Code.THROWN && error.detail["value"] == STALE) return null
            throw RefusedException(placed(error.fields, before.length), error.cause)
        }
    }

    /** Corrects the place of a refusal to that in the script of the caller. */
    private fun placed(fields: RefusalFields, before: Int): RefusalFields =
        fields.copy(
            statement = fields.statement?.let { maxOf(it - STATEMENTS_BEFORE, 1) },
            column = if (fields.line == 1) fields.column?.let { maxOf(it - before, 1) } else fields.column,
        )

    /**
     * Returns the messages of the group as they arrive, for ever. Each collection is a [consumer] of its own, which
     * stops where the collection ends. The arguments are those of [consumer].
     */
    public fun messages(prefetch: Int = PREFETCH, member: String? = null, extend: Boolean = false): Flow<Delivery> =
        flow { consumer(prefetch, member, extend).use { consumer -> while (true) emit(consumer.next() ?: break) } }

    /**
     * Returns a consumer, which any number of coroutines may share. It takes nothing before its first message is asked
     * for.
     *
     * @param prefetch messages to take ahead. The deadline of a message starts when it is taken
     * @param member name of the consumer in INFO FOR GROUP
     * @param extend extend the deadlines of messages until they are settled, for work that takes longer than these
     */
    public fun consumer(prefetch: Int = PREFETCH, member: String? = null, extend: Boolean = false): Consumer {
        if (prefetch < 1) throw ValueException("prefetch", "a consumer takes at least one message ahead")
        return Consumer(this, prefetch, member, extend)
    }

    /** Returns the answer of INFO FOR GROUP. */
    public suspend fun info(): Row = infoOf(topic.value("INFO FOR GROUP $quoted ON ${topic.quoted}", emptyMap(), isRepeatable = true))

    override fun toString(): String = "group $name of $topic"
}

private class PendingAck(val receipt: String) {
    val answer = CompletableDeferred<Boolean>()
}

/**
 * Takes the messages of a group as they arrive, for ever. It prefetches, and goes through outages once the node has
 * answered; a message whose delivery was lost is delivered again after its deadline.
 */
public class Consumer internal constructor(
    private val group: Group,
    private val prefetch: Int,
    private val member: String?,
    private val extend: Boolean,
) : Closeable {
    private val nodes = group.topic.database.client.nodes
    private val stopping = Job(nodes.closing)
    private val news = News()
    private val lock = Any()
    private var ready = ArrayDeque<Delivery>()

    /** Messages that were given out and not settled, with the time until which each was extended by hand. */
    private val held = HashMap<String, Long>()
    private var works = emptyList<Job>()
    private var stopped: Deferred<Unit>? = null
    private var hasStarted = false
    private var failure: Throwable? = null
    private val acks = ArrayDeque<PendingAck>()
    private var acking: Job? = null

    /** Number of acknowledgements that came too late. */
    @Volatile
    public var stale: Int = 0
        private set

    private val owner =
        object : Owner {
            override suspend fun ack(receipt: String) = this@Consumer.ack(receipt)

            override suspend fun done(receipt: String, script: String, params: Row) = this@Consumer.done(receipt, script, params)

            override suspend fun settle(op: Settling, receipt: String, fields: List<Any?>) = this@Consumer.settle(op, receipt, fields)
        }

    internal val heldCount: Int get() = synchronized(lock) { held.size + ready.size }

    /** Waits for the next message; null: the consumer was stopped. */
    public suspend fun next(): Delivery? {
        start()
        while (true) {
            synchronized(lock) {
                if (stopped != null) return null
                ready.removeFirstOrNull()?.let {
                    if (extend) held[it.receipt] = System.nanoTime()
                    news.announce()
                    return it
                }
                failure?.let { throw it }
            }
            news.await { synchronized(lock) { stopped != null || ready.isNotEmpty() || failure != null } }
        }
    }

    private fun start() {
        synchronized(lock) {
            if (hasStarted || stopped != null) return
            hasStarted = true
            works =
                listOf(nodes.scope.launch { failing { takeAhead() } }) + if (extend) listOf(nodes.scope.launch { failing { keepExtending() } }) else emptyList()
        }
    }

    private suspend fun failing(work: suspend () -> Unit) {
        try {
            work()
        } catch (error: StoreException) {
            synchronized(lock) { failure = failure ?: error }
        } catch (error: IllegalArgumentException) {
            synchronized(lock) { failure = failure ?: error }
        }
        news.announce()
    }

    private fun missing(): Int = synchronized(lock) { prefetch - ready.size }

    private suspend fun takeAhead() {
        val pause = retryBackoff()
        var wasAnswered = false
        val half = (prefetch + 1) / 2 // few large requests rather than one for each message
        while (true) {
            news.await { stopping.isStopped || missing() >= half }
            if (stopping.isStopped) break
            val found =
                try {
                    group.takeFor(owner, minOf(missing(), TAKE_MOST), member, TAKE_WAIT, stopping)
                } catch (error: StoreException) {
                    if (stopping.isStopped && error.isRefused(Code.CANCELLED)) break
                    val isPatient = wasAnswered || (error is Refusal && error.retry)
                    if (!isPatient || !error.isOutage()) throw error
                    pause.pause(stopping)
                    continue
                }
            pause.reset()
            wasAnswered = true
            synchronized(lock) { ready.addAll(found) }
            news.announce()
        }
        if (nodes.isClosed) throw ClosedException()
    }

    private suspend fun keepExtending() {
        val pause = retryBackoff()
        var deadline: Duration? = null
        while (!stopping.isStopped) {
            try {
                if (deadline != null) extendAll(deadline)
                deadline = deadline ?: group.info().needed<JavaDuration>("deadline").toKotlinDuration()
            } catch (error: StoreException) {
                if (stopping.isStopped) return
                if (!error.isOutage()) throw error
                pause.pause(stopping)
                continue
            }
            pause.reset()
            pause(maxOf(deadline / EXTENSIONS, LEAST_PAUSE), stopping)
        }
    }

    /** Extends what is held, and forgets what is not this consumer's any more. */
    private suspend fun extendAll(deadline: Duration) {
        val until = System.nanoTime() + deadline.inWholeNanoseconds
        val receipts = synchronized(lock) { held.filterValues { it - until < 0 }.keys + ready.map { it.receipt } }
        for (some in receipts.chunked(RECEIPTS_MOST)) {
            val gone = group.extend(some, deadline).stale.toSet()
            synchronized(lock) {
                ready.removeAll { it.receipt in gone }
                held.keys.removeAll(gone)
            }
            news.announce()
        }
    }

    /** Calls until the node has answered. The second of the pair: an attempt broke off, and may have been done. */
    private suspend fun <T> throughOutages(call: suspend () -> T): Pair<T, Boolean> {
        val pause = retryBackoff()
        var isUnsure = false
        while (true) {
            try {
                return call() to isUnsure
            } catch (error: StoreException) {
                if (stopping.isStopped || !error.isOutage()) throw error
                isUnsure = isUnsure || error is OutcomeUnknownException
            }
            pause.pause(stopping)
        }
    }

    private suspend fun ack(receipt: String): Boolean {
        val pending = PendingAck(receipt)
        synchronized(lock) {
            held.remove(receipt)
            acks.add(pending)
            if (acking == null) acking = nodes.scope.launch { sendAcks() }
        }
        try {
            return pending.answer.await()
        } catch (error: CancellationException) {
            synchronized(lock) { acks.remove(pending) }
            if (pending.answer.isCancelled && nodes.isClosed) throw ClosedException()
            throw error
        }
    }

    /** Sends acknowledgements, one request after the other, until none is left. */
    private suspend fun sendAcks() {
        while (true) {
            val batch =
                synchronized(lock) {
                    if (acks.isEmpty()) acking = null
                    List(minOf(acks.size, RECEIPTS_MOST)) { acks.removeFirst() }
                }
            if (batch.isEmpty()) return
            try {
                val (found, isUnsure) = throughOutages { group.ack(batch.map { it.receipt }) }
                settleAcks(batch, found.stale, isUnsure)
            } catch (error: StoreException) {
                for (one in batch) one.answer.completeExceptionally(error)
            } finally {
                for (one in batch) one.answer.cancel() // of a client that was abandoned
            }
        }
    }

    private fun settleAcks(batch: List<PendingAck>, stale: List<String>, isUnsure: Boolean) {
        val left = stale.groupingBy { it }.eachCount().toMutableMap()
        for (one in batch.asReversed()) { // of a receipt that stands there twice the first was in time
            val count = left[one.receipt] ?: 0
            left[one.receipt] = maxOf(count - 1, 0)
            if (count == 0) {
                one.answer.complete(true)
            } else if (isUnsure) {
                val said = "the connection broke under the acknowledgement, and the node no longer has the message: it was in time, or it was not"
                one.answer.completeExceptionally(unsure(said))
            } else {
                this.stale++
                one.answer.complete(false)
            }
        }
    }

    private suspend fun done(receipt: String, script: String, params: Row): Answer? {
        val (found) = throughOutages { group.done(receipt, script, params) }
        synchronized(lock) { held.remove(receipt) }
        return found
    }

    private suspend fun settle(op: Settling, receipt: String, fields: List<Any?>): Boolean {
        val until = if (op == Settling.EXTEND) System.nanoTime() + (fields[1] as Duration).inWholeNanoseconds else null
        synchronized(lock) { if (until == null) held.remove(receipt) else held.replace(receipt, until) }
        try {
            return group.settle(op, listOf(receipt), fields).done > 0
        } catch (error: StoreException) {
            synchronized(lock) { held.replace(receipt, System.nanoTime()) } // it may not have been extended
            throw error
        }
    }

    /**
     * Stops taking messages, waits for the acknowledgements in flight, and returns prefetched messages to the group,
     * which counts as an attempt of these. A second stop does nothing more.
     */
    public suspend fun stop() {
        val done = synchronized(lock) { stopped ?: nodes.scope.async { giveBack() }.also { stopped = it } }
        stopping.cancel()
        news.announce()
        done.await()
    }

    /** Stops the consumer. */
    override suspend fun close(): Unit = stop()

    private suspend fun giveBack() {
        works.forEach { it.join() }
        synchronized(lock) { acking }?.join()
        val receipts = synchronized(lock) { ready.map { it.receipt }.also { ready.clear() } }
        if (synchronized(lock) { failure } != null) return // the error is the caller's; the messages come again after their deadline
        for (some in receipts.chunked(RECEIPTS_MOST)) group.nack(some, Duration.ZERO, GIVEN_BACK)
    }
}

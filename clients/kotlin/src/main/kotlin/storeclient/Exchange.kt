package storeclient

import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.withLock
import kotlin.time.Duration
import kotlin.time.Duration.Companion.nanoseconds
import kotlin.time.Duration.Companion.seconds

/** Newest minor of the wire that this client speaks. */
internal const val MINOR = 10

internal const val MINOR_OF_FEEDS = 1
internal const val MINOR_OF_STREAMS = 5
internal const val MINOR_OF_VAULTS = 6
internal const val MINOR_OF_AFTER = 7
internal const val MINOR_OF_SEQUENCES = 8

/** Time past a request's own timeout for the node's answer about it to arrive. */
private val GRACE = 5.seconds

/** Size of a frame beside which a node may hear no PING. */
private const val LARGE_FRAME = 4 shl 10

/** Bytes that wait to be written; past them requests wait. */
private const val OUT_MOST = 1 shl 20

/**
 * Times of a connection that may have been lost without a word.
 *
 * @property quiet time without a byte while something is open; then the peer is asked
 * @property answer time for anything to come of that
 * @property leaving likewise, of a node that has said BYE and cannot be asked
 * @property grace time for an AUTH to be answered, and for a node to close that has answered all
 */
internal data class Pulse(
    val quiet: Duration = 20.seconds,
    val answer: Duration = 20.seconds,
    val leaving: Duration = 60.seconds,
    val grace: Duration = GRACE,
)

/** A request under way. Its methods are called outside of all locks. */
internal abstract class Call(val kind: Kind, val waits: Boolean = false) {
    /** Id on its connection; 0 before it has one. Guarded by the exchange. */
    var id = 0L

    /** Place of its frame in the bytes to be written. Guarded by the exchange. */
    var start = 0
    var end = 0

    /** Ends the request, with a reply or an error. */
    abstract fun settle(reply: Any?, error: Throwable?)

    /** Takes a CHANGE or a PART; false: the request takes none. */
    open fun onMessage(body: Row, size: Int): Boolean = false
}

/** State of a request at the time when it is given up. */
internal enum class GivenUp { WAITING, UNSENT, WRITTEN, ANSWERED }

/** What to do about a message. */
internal sealed interface Received {
    /** The request of its id was given up before. */
    data object Nothing : Received

    /** The node has said BYE. */
    data object Bye : Received

    /** The last message of a request. */
    class Last(val call: Call) : Received

    /** A message of a request that goes on. */
    class Part(val call: Call) : Received
}

/**
 * The requests of one connection, without its I/O: ids, bytes to be written, who gets a message, and when a silent
 * peer counts as lost. Callers, the reader and the writer share it.
 */
internal class Exchange(private val pulse: Pulse, private val now: () -> Long = System::nanoTime) {
    private val lock = ReentrantLock()
    private val hasOutput = lock.newCondition()
    private val canRead = lock.newCondition()

    private var out = Bytes()
    private var spare = Bytes()

    /** Requests with this id and later ones were not handed to the operating system. */
    private var unsentFrom = 1L
    private var last = 0L
    private val calls = LinkedHashMap<Long, Call>()
    private val large = HashSet<Long>()

    /** Requests that wait for room, without an id. */
    private var waiting = ArrayDeque<Pair<Call, ByteArray>>()
    private val quiet = ArrayList<() -> Unit>()
    private var isWatched = false
    private var pingedAt = 0L
    private var saidBye = false

    /** When a byte came for the last time. */
    @Volatile
    var heard = now()

    /** True if nothing new begins: the node has said BYE, or the client closes. */
    @Volatile
    var isLeaving = false
        private set

    @Volatile
    var isOver = false
        private set

    /** True if nothing is read: what comes of a backup is not taken. */
    @Volatile
    var isStalled = false
        private set

    val isUsable: Boolean get() = !isOver && !isLeaving

    // --- asking ------------------------------------------------------------------------------------------

    /** Adds a request, or has it wait for room. Returns true if the peer has to be watched from now on. */
    fun begin(call: Call, body: ByteArray): Boolean {
        if (body.size > FRAME_MOST - AROUND_BODY) {
            throw ValueException("", "a request has at most $FRAME_MOST bytes, this one has ${body.size}")
        }
        lock.withLock {
            if (!isUsable) throw NotSent()
            if (out.size > OUT_MOST || waiting.isNotEmpty()) {
                waiting.add(call to body)
                return false
            }
            add(call, body)
            return startsWatch()
        }
    }

    private fun add(call: Call, body: ByteArray) {
        call.id = ++last
        call.start = out.size
        send(call.kind, call.id, body)
        call.end = out.size
        calls[call.id] = call
        if (body.size > LARGE_FRAME) large.add(call.id)
    }

    private fun startsWatch(): Boolean = !isWatched.also { isWatched = true }

    private fun send(kind: Kind, id: Long, body: ByteArray) {
        addFrame(out, kind, id, body)
        hasOutput.signal()
    }

    /** Adds the first message of a connection. */
    fun greet(body: ByteArray): Unit = lock.withLock { send(Kind.HELLO, 0, body) }

    /** Asks the node to end a request early. Its answer is waited for. */
    fun sendEnd(call: Call): Unit = lock.withLock { addEnd(call) }

    private fun addEnd(call: Call) {
        if (isOver || saidBye || calls[call.id] !== call) return
        when (call.kind) {
            Kind.RUN, Kind.TOPIC -> send(Kind.CANCEL, call.id, NIL)
            Kind.WATCH -> send(Kind.UNWATCH, call.id, NIL)
            else -> Unit
        }
    }

    /** Takes a request out that has no id yet; false: it has one, or is over. */
    fun dropWaiting(call: Call): Boolean = lock.withLock { waiting.removeAll { it.first === call } }

    /** Ends a request that nobody waits for any more. Its answer is dropped. */
    fun giveUp(call: Call): GivenUp =
        lock.withLock {
            if (waiting.removeAll { it.first === call }) return GivenUp.WAITING
            if (calls[call.id] !== call) return GivenUp.ANSWERED
            val isUnsent = call.id >= unsentFrom
            if (isUnsent) takeBack(call) else addEnd(call)
            forget(call.id)
            return if (isUnsent) GivenUp.UNSENT else GivenUp.WRITTEN
        }

    private fun takeBack(call: Call) {
        val size = call.end - call.start
        out.remove(call.start, call.end)
        for (one in calls.values) {
            if (one.id > call.id) {
                one.start -= size
                one.end -= size
            }
        }
    }

    private fun forget(id: Long) {
        calls.remove(id)
        large.remove(id)
        if (calls.isEmpty()) wakeQuiet()
    }

    // --- writing -----------------------------------------------------------------------------------------

    /** Number of bytes that wait to be written. */
    val outSize: Int get() = lock.withLock { out.size }

    /** Waits for bytes to be written; false: the connection has ended. */
    fun awaitOutput(): Boolean =
        lock.withLock {
            while (out.size == 0 && !isOver) hasOutput.awaitUninterruptibly()
            !isOver
        }

    /** Takes all bytes that wait. They belong to the writer until it takes others. */
    fun takeOutput(): Bytes =
        lock.withLock {
            val taken = out
            out = spare
            out.clear()
            spare = taken
            unsentFrom = last + 1
            while (waiting.isNotEmpty() && out.size <= OUT_MOST) waiting.removeFirst().let { (call, body) -> add(call, body) }
            return taken
        }

    // --- reading -----------------------------------------------------------------------------------------

    /** Finds out what a message is about. What ends the connection is thrown. */
    fun onMessage(message: Frame): Received {
        val (kind, id) = message.kind to message.id
        if (kind == Kind.BYE) return Received.Bye
        if (id == 0L && (kind == Kind.ERROR || kind == Kind.REFUSED)) throw readError(message.body)
        lock.withLock {
            val call = calls[id] ?: return Received.Nothing // it was given up, and its answer has crossed that
            if (kind == Kind.CHANGE || kind == Kind.PART) {
                if ((call.kind == Kind.WATCH) != (kind == Kind.CHANGE)) throw unfit(call, kind)
                return Received.Part(call)
            }
            forget(id)
            return Received.Last(call)
        }
    }

    /** Stops reading, or goes on. */
    fun stall(isStalled: Boolean): Unit =
        lock.withLock {
            this.isStalled = isStalled
            heard = now()
            canRead.signalAll()
        }

    /** Waits while nothing is read. */
    fun awaitReading(): Unit = lock.withLock { while (isStalled && !isOver) canRead.awaitUninterruptibly() }

    // --- liveness ----------------------------------------------------------------------------------------

    /**
     * Judges a peer that says nothing while something is open. Returns the time until the next look; null: nothing is
     * open, or the peer is lost, which [ping] and [lose] are told of.
     */
    fun look(ping: () -> Call, lose: (String) -> Unit): Duration? {
        val isLost =
            lock.withLock {
                if (isOver || calls.isEmpty()) {
                    isWatched = false
                    pingedAt = 0
                    return null
                }
                if (pingedAt == 0L || heard - pingedAt >= 0) return nextLook(ping)
                saidBye
            }
        lose("nothing came any more${if (isLost) " behind the node's BYE" else ", not in answer to a PING either"}")
        return null
    }

    private fun nextLook(ping: () -> Call): Duration {
        pingedAt = 0
        val left = pulse.quiet - (now() - heard).nanoseconds
        if (left > Duration.ZERO) return left
        // A node may read on only once a large request is answered, and hears no PING meanwhile.
        if (isStalled || (large.isNotEmpty() && !saidBye)) return pulse.quiet
        pingedAt = now()
        if (saidBye) return pulse.leaving
        add(ping(), NIL)
        return pulse.answer
    }

    // --- the end -----------------------------------------------------------------------------------------

    /** Answers the node's BYE: nothing new begins. */
    fun onBye() {
        isLeaving = true
        settleWaiting()
        sayBye()
    }

    /** Has nothing new begin, and ends what only waits for something to come. */
    fun leave() {
        isLeaving = true
        settleWaiting()
        lock.withLock {
            for (call in calls.values.toList()) if (call.waits || call.kind == Kind.WATCH) addEnd(call)
        }
    }

    fun sayBye(): Unit =
        lock.withLock {
            if (!saidBye && !isOver) {
                send(Kind.BYE, 0, NIL)
                saidBye = true
            }
        }

    /** Calls back once nothing is open. */
    fun whenQuiet(callback: () -> Unit) {
        lock.withLock {
            if (calls.isNotEmpty()) {
                quiet.add(callback)
                return
            }
        }
        callback()
    }

    private fun wakeQuiet() {
        quiet.forEach { it() }
        quiet.clear()
    }

    private fun settleWaiting() {
        val dropped = lock.withLock { waiting.also { waiting = ArrayDeque() } }
        for ((call) in dropped) call.settle(null, NotSent())
    }

    /** Ends everything that is open; false: it was over before. */
    fun end(cause: Throwable?): Boolean {
        val (open, unsent) =
            lock.withLock {
                if (isOver) return false
                isOver = true
                hasOutput.signalAll()
                canRead.signalAll()
                calls.values.toList().also { calls.clear() } to unsentFrom
            }
        settleWaiting()
        for (call in open) {
            val said = "the connection ended before ${call.kind} was answered"
            call.settle(null, if (call.id >= unsent) NotSent() else unsure(said, cause))
        }
        lock.withLock { wakeQuiet() }
        return true
    }

    private companion object {
        val NIL = byteArrayOf(0xc0.toByte())
    }
}

internal fun unfit(call: Call, kind: Kind): ProtocolBrokenException = broken("the node answered ${call.kind} with $kind")

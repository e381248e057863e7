package storeclient

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.job
import kotlinx.coroutines.launch
import kotlinx.coroutines.suspendCancellableCoroutine
import kotlinx.coroutines.withTimeoutOrNull
import java.io.IOException
import java.net.Socket
import java.net.SocketTimeoutException
import java.util.concurrent.ScheduledThreadPoolExecutor
import javax.net.ssl.SSLException
import kotlin.concurrent.thread
import kotlin.coroutines.resume
import kotlin.coroutines.resumeWithException
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.nanoseconds
import kotlin.time.Duration.Companion.seconds

private const val DEFAULT_PORT = 8001
private const val PORT_MOST = 65_535

/** Time for which a node is left alone that could not be reached, or was too far behind. */
private val AWAY = 5.seconds

/** Nodes that a client knows. */
private const val NODES_MOST = 64

/** Kind of a [ConnectionEvent]. */
public enum class ConnectionChange {
    /** The first connection to a node. */
    CONNECTED,

    /** A later connection to a node. */
    RECONNECTED,

    /** A connection has ended. */
    LOST,
}

/**
 * A connection was made, made again, or lost.
 *
 * @property change kind of the event
 * @property address address of the node
 * @property version version of the node, once connected
 * @property cause cause of the loss; null if a side closed the connection
 */
public data class ConnectionEvent(
    val change: ConnectionChange,
    val address: String,
    val version: String? = null,
    val cause: Throwable? = null,
)

/** One node of a store: its address, and the connection to it. Guarded by [Nodes]. */
internal class StoreNode(val host: String, val port: Int) {
    @Volatile
    var conn: Connection? = null

    /** Null: not known. */
    @Volatile
    var takesChanges: Boolean? = null

    @Volatile
    var isForeign = false

    @Volatile
    var restsUntil = System.nanoTime()
    var wasConnected = false
    var opening: Deferred<Connection>? = null

    val address: String get() = if (':' in host) "[$host]:$port" else "$host:$port"
    val usable: Connection? get() = conn?.takeIf { it.isUsable }
    val rests: Boolean get() = restsUntil - System.nanoTime() > 0

    fun rest() {
        restsUntil = System.nanoTime() + AWAY.inWholeNanoseconds
    }
}

private val ADDRESS = Regex("(?:\\[([^\\]]*)]|([^:\\[\\]]*))(?::(\\d*))?")

/** Reads `host:port`, `host`, `:port` or `[::1]:port`. */
internal fun splitAddress(address: String): Pair<String, Int> {
    val (inBrackets, plain, digits) =
        ADDRESS.matchEntire(address)?.destructured
            ?: throw IllegalArgumentException("'${address.take(SHOWN)}' is no address: write host:port or [host]:port")
    val port = if (digits.isEmpty()) DEFAULT_PORT else digits.toIntOrNull() ?: 0
    require(port in 1..PORT_MOST) { "'${address.take(SHOWN)}' is no address: write host:port or [host]:port" }
    return inBrackets.ifEmpty { plain }.ifEmpty { "127.0.0.1" } to port
}

private const val SHOWN = 80

/** All nodes of a store. One is home: everything goes there that does not go elsewhere on purpose. */
internal class Nodes(
    addresses: List<String>,
    val credential: Credential,
    tls: Tls?,
    pulse: Pulse,
    val connectTimeout: Duration,
    private val onConnection: ((ConnectionEvent) -> Unit)?,
) {
    val all: List<StoreNode> get() = synchronized(lock) { known.toList() }

    @Volatile
    var home: StoreNode? = null
        private set

    @Volatile
    var isClosed = false
        private set

    /** Over once the client closes. */
    val closing = Job()
    val given: String

    /** Scope of the work that outlives a call. */
    val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    private val lock = Any()
    private val known = ArrayList<StoreNode>()
    private var named = emptyList<StoreNode>()
    private var search: Deferred<StoreNode>? = null
    private var turn = 0
    private val timer =
        ScheduledThreadPoolExecutor(1) { Thread(it, "storeclient timer").apply { isDaemon = true } }.apply { removeOnCancelPolicy = true }
    private val settings = Settings(credential, tls, pulse, timer, scope)
    private val events = Channel<ConnectionEvent>(Channel.UNLIMITED)
    private val works = SupervisorJob()

    init {
        for (one in addresses.flatMap { it.split(",") }) {
            val (host, port) = splitAddress(one.trim())
            if (at(host, port) == null) known.add(StoreNode(host, port))
        }
        require(known.isNotEmpty()) { "a client needs an address" }
        require(known.size <= NODES_MOST) { "a client knows at most $NODES_MOST nodes, not ${known.size}" }
        require(credential.token == null || known.size == 1) { "a token is of one node: with several addresses, give user and password" }
        given = known.joinToString { it.address }
        if (onConnection != null) scope.launch { for (event in events) report(onConnection, event) }
    }

    private fun at(host: String, port: Int): StoreNode? = known.find { it.host == host && it.port == port }

    val areSeveral: Boolean get() = synchronized(lock) { known.size > 1 }

    /** Starts work that the end of the client waits for. */
    private fun <T> track(work: suspend () -> T): Deferred<T> {
        val done = scope.async { work() }
        val entry = Job(works)
        done.invokeOnCompletion { entry.complete() }
        return done
    }

    // --- home --------------------------------------------------------------------------------------------

    /** Returns the node to ask, connected. All that need one share a search. */
    suspend fun findHome(): StoreNode {
        if (isClosed) throw ClosedException()
        home?.let { if (it.usable != null) return it }
        val mine =
            synchronized(lock) {
                if (isClosed) throw ClosedException()
                search ?: track(::searchHome).also { search = it }
            }
        try {
            return mine.await()
        } catch (error: CancellationException) {
            currentCoroutineContext().ensureActive()
            throw if (isClosed) ClosedException() else error
        }
    }

    private suspend fun searchHome(): StoreNode {
        try {
            val found = find()
            synchronized(lock) { home = found }
            return found
        } catch (error: StoreException) {
            throw if (isClosed) ClosedException() else error
        } finally {
            synchronized(lock) { search = null }
        }
    }

    private suspend fun find(): StoreNode {
        val deadline = System.nanoTime() + connectTimeout.inWholeNanoseconds
        val pause = Backoff(20.milliseconds, 500.milliseconds)
        while (true) {
            val errors = ArrayList<Throwable>()
            askRound(deadline, errors)?.let { return it }
            val last = errors.last()
            if (errors.none(::mayGoAway)) throw endOfSearch(last)
            val step = pause.step()
            if ((deadline - System.nanoTime()).nanoseconds <= step || isClosed) {
                throw unreached("no connection to $given in $connectTimeout: ${last.message}", last)
            }
            pause(step, closing)
        }
    }

    private fun endOfSearch(last: Throwable): StoreException {
        val said =
            when {
                last is Refusal && last is StoreException -> return last
                last is UntrustedException -> "the certificate of $given is not trusted"
                !mayGoAway(last) && last is SSLException -> "no TLS is spoken at $given: connect without it, or to another port"
                else -> "no connection to $given"
            }
        return unreached("$said: ${last.message}", last)
    }

    /** Returns the node that takes changes, or else the first that answers. */
    private suspend fun askRound(deadline: Long, errors: MutableList<Throwable>): StoreNode? {
        val waiting = ArrayDeque(inOrder())
        val asked = HashSet<StoreNode>()
        var second: StoreNode? = null
        while (waiting.isNotEmpty()) {
            val one = waiting.removeFirst()
            if (!asked.add(one)) continue
            val share = (deadline - System.nanoTime()).coerceAtLeast(0).nanoseconds / (1 + waiting.size)
            val conn =
                try {
                    open(one, share)
                } catch (error: IOException) {
                    errors.add(error)
                    continue
                } catch (error: UntrustedException) {
                    errors.add(error)
                    continue
                } catch (error: StoreException) {
                    errors.add(error)
                    continue
                }
            if (one.takesChanges != false) {
                synchronized(lock) { named = emptyList() }
                return one
            }
            nodesAt(conn.welcome.leader).asReversed().forEach(waiting::addFirst)
            second = second ?: one
        }
        return second
    }

    /** Returns the named nodes, those that take changes or may, and the others. */
    private fun inOrder(): List<StoreNode> =
        synchronized(lock) { (named + known.filter { it.takesChanges != false } + known.filter { it.takesChanges == false }).distinct() }

    /** Returns the nodes at addresses that a node has named. What is no address is passed over. */
    private fun nodesAt(endpoints: List<*>): List<StoreNode> =
        synchronized(lock) {
            if (known.size < 2) return emptyList()
            endpoints.filterIsInstance<String>().mapNotNull { endpoint ->
                try {
                    val (host, port) = splitAddress(endpoint)
                    at(host, port) ?: if (known.size < NODES_MOST) StoreNode(host, port).also(known::add) else null
                } catch (_: IllegalArgumentException) {
                    null
                }
            }
        }

    // --- connections -------------------------------------------------------------------------------------

    /** Returns the connection of a node. Without one a single attempt is made. */
    private suspend fun open(node: StoreNode, within: Duration): Connection {
        node.usable?.let { return it }
        val opening =
            synchronized(lock) {
                if (isClosed) throw ClosedException()
                node.opening ?: startOpening(node, within)
            }
        return withTimeoutOrNull(within) { opening.await() } ?: throw SocketTimeoutException("no welcome from ${node.address} within $within")
    }

    private fun startOpening(node: StoreNode, within: Duration): Deferred<Connection> =
        track { connect(node, within) }.also { node.opening = it }

    private suspend fun connect(node: StoreNode, within: Duration): Connection {
        val address = node.address
        val conn =
            try {
                dial(node, within, closing) { cause ->
                    if (!isClosed) events.trySend(ConnectionEvent(ConnectionChange.LOST, address, cause = cause))
                }
            } catch (error: Exception) {
                node.rest()
                synchronized(lock) { node.opening = null }
                throw error
            }
        synchronized(lock) {
            node.opening = null
            node.conn?.let { parting -> track { parting.ended.await() } } // what is open there is answered
            node.takesChanges = conn.welcome.writable
            node.conn = conn
            node.restsUntil = System.nanoTime()
            val change = if (node.wasConnected) ConnectionChange.RECONNECTED else ConnectionChange.CONNECTED
            events.trySend(ConnectionEvent(change, address, conn.welcome.version))
            node.wasConnected = true
        }
        conn.start()
        if (isClosed) track { conn.close() }
        return conn
    }

    /** Makes a connection in a thread of its own, which its end, or [stop], leaves behind. */
    private suspend fun dial(node: StoreNode, within: Duration, stop: Job?, onEnd: ((Throwable?) -> Unit)?): Connection =
        suspendCancellableCoroutine { waiter ->
            var socket: Socket? = null
            val opened = { one: Socket ->
                socket = one
                if (!waiter.isActive || stop?.isStopped == true) one.close()
            }
            val handle = stop?.invokeOnCompletion { socket?.close() }
            waiter.invokeOnCancellation { socket?.close() }
            thread(name = "storeclient dials ${node.address}", isDaemon = true) {
                try {
                    val conn = Connection.dial(node.host, node.port, settings, within, opened, onEnd)
                    waiter.resume(conn) { _, left, _ -> left.end(null) }
                } catch (error: IOException) {
                    waiter.resumeWithException(error)
                } catch (error: RuntimeException) {
                    waiter.resumeWithException(error)
                } finally {
                    handle?.dispose()
                }
            }
        }

    /** Reports an event in a coroutine of its own, so that it holds up no request. */
    private fun report(to: (ConnectionEvent) -> Unit, event: ConnectionEvent) {
        try {
            to(event)
        } catch (error: RuntimeException) {
            Thread.currentThread().let { it.uncaughtExceptionHandler.uncaughtException(it, error) }
        }
    }

    /** Returns a node to read from, connected: each in its turn. The others are connected meanwhile. */
    suspend fun near(): StoreNode {
        val home = findHome()
        synchronized(lock) {
            val ready =
                known.filter { one ->
                    val conn = one.usable
                    when {
                        one === home -> true

                        one.isForeign || one.rests -> false

                        conn != null -> conn.welcome.minor >= MINOR_OF_AFTER

                        else -> {
                            if (one.opening == null && !isClosed) startOpening(one, connectTimeout) // it rests where that fails
                            false
                        }
                    }
                }
            return ready[++turn % ready.size]
        }
    }

    /** Has another home looked for: a node took no change. */
    fun onRefusedBy(node: StoreNode, leader: Any?) {
        synchronized(lock) {
            node.takesChanges = false
            known.remove(node)
            known.add(node)
            named = nodesAt(leader as? List<*> ?: emptyList<Any>()).filter { it !== node }
            for (one in named) one.takesChanges = null
            if (home === node) home = null
        }
    }

    /** Works on a connection to home that nothing else uses. The client closes only behind that. */
    suspend fun <T> withOwn(work: suspend (Connection) -> T): T {
        val home = findHome()
        val entry = synchronized(lock) { if (isClosed) throw ClosedException() else Job(works) }
        try {
            val conn = dialOwn(home)
            try {
                return work(conn)
            } finally {
                conn.end(null)
            }
        } finally {
            entry.complete()
        }
    }

    private suspend fun dialOwn(home: StoreNode): Connection =
        try {
            dial(home, connectTimeout, stop = null, onEnd = null).also { it.start() }
        } catch (error: StoreException) {
            throw error as? RefusedException ?: unreachable(home, error)
        } catch (error: IOException) {
            throw unreachable(home, error)
        } catch (error: UntrustedException) {
            throw unreachable(home, error)
        }

    private fun unreachable(node: StoreNode, cause: Exception) = unreached("no connection to ${node.address}: ${cause.message}", cause)

    /** Waits for what is under way, then ends all connections. */
    suspend fun close() {
        val conns =
            synchronized(lock) {
                isClosed = true
                known.mapNotNull { it.conn }
            }
        closing.cancel()
        coroutineScope { conns.map { async { it.close() } }.awaitAll() }
        while (works.children.any()) works.children.forEach { it.join() }
        scope.coroutineContext.job.cancelAndJoin()
        timer.shutdownNow()
    }

    /** Ends all connections at once. */
    fun abandon() {
        val conns =
            synchronized(lock) {
                isClosed = true
                known.mapNotNull { it.conn }
            }
        closing.cancel()
        conns.forEach { it.end(null) }
        scope.coroutineContext.job.cancel()
        timer.shutdownNow()
    }
}

/** True if another attempt may help. */
private fun mayGoAway(error: Throwable): Boolean =
    when (error) {
        is Refusal -> error.retry
        is UntrustedException, is ProtocolBrokenException -> false
        is SSLException -> error.message?.contains("Unsupported or unrecognized SSL message") != true
        else -> true
    }

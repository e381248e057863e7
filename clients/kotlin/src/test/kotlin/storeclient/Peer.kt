package storeclient

import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.supervisorScope
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeout
import java.io.IOException
import java.net.InetAddress
import java.net.ServerSocket
import java.net.Socket
import javax.net.ServerSocketFactory
import kotlin.concurrent.thread
import kotlin.test.assertEquals
import kotlin.test.fail
import kotlin.time.Duration
import kotlin.time.Duration.Companion.microseconds
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.minutes

/** Time that a test waits for what has to come: a failure, and never a measure. */
val PATIENCE: Duration = 3.minutes

/** A message of a client. */
class Heard(val kind: String, val id: Long, val body: Map<String, Any?>)

/** A node that does what the test says. */
class Peer(factory: ServerSocketFactory = ServerSocketFactory.getDefault()) : AutoCloseable {
    private val server: ServerSocket = factory.createServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))
    private val accepted = Channel<Spoken>(Channel.UNLIMITED)
    var writable = true
    var leader = emptyList<String>()
    var minor = 10
    val port: Int = server.localPort
    val address = "127.0.0.1:$port"

    init {
        thread(isDaemon = true) {
            try {
                while (true) accepted.trySend(Spoken(server.accept(), this))
            } catch (_: IOException) {
                accepted.close()
            }
        }
    }

    suspend fun accept(): Spoken = accepted.receive().also { it.start() }

    /** Accepts a connection and welcomes it. */
    suspend fun greet(): Spoken {
        val one = accept()
        val hello = one.wants("HELLO")
        assertEquals("STORE", hello.body["magic"])
        assertEquals("root", hello.body["user"])
        one.welcome(0)
        return one
    }

    override fun close(): Unit = server.close()
}

/** One connection to a peer. */
class Spoken(val socket: Socket, private val peer: Peer) {
    private val heard = Channel<Heard>(Channel.UNLIMITED)

    /** Chunks that have come. */
    @Volatile
    var reads = 0

    @Volatile
    var isStopped = false

    fun start() {
        thread(isDaemon = true) { listen() }
    }

    private fun listen() {
        val frames = Bytes()
        val decoder = Decoder()
        val chunk = ByteArray(1 shl 16)
        try {
            while (!isStopped) {
                val count = socket.getInputStream().read(chunk)
                if (count < 0) break
                reads++
                frames.add(chunk, 0, count)
                while (frames.size >= 4) {
                    val size = java.nio.ByteBuffer.wrap(frames.array).int
                    if (frames.size < 4 + size) break
                    val (kind, id, body) = decoder.read(frames.array, 4, size) as List<*>
                    frames.remove(0, 4 + size)
                    heard.trySend(Heard(Kind.of(kind as Long).toString(), id as Long, body.asBody()))
                }
            }
        } catch (_: IOException) {
            isStopped = true
        }
        if (!isStopped || socket.isClosed) heard.close()
        heard.close()
    }

    /** Returns the next message; null: the client has closed. */
    suspend fun read(): Heard? = heard.receiveCatching().getOrNull()

    suspend fun next(): Heard = read() ?: fail("the client has closed")

    suspend fun wants(kind: String): Heard = next().also { assertEquals(kind, it.kind) }

    fun write(bytes: ByteArray) {
        socket.getOutputStream().write(bytes)
    }

    fun say(kind: String, id: Long, body: Map<String, Any?>?) {
        val bytes = Bytes()
        addFrame(bytes, Kind.valueOf(kind), id, if (body == null) byteArrayOf(0xc0.toByte()) else packValue(body))
        write(bytes.array.copyOf(bytes.size))
    }

    fun welcome(id: Long) {
        val user = mapOf("name" to "root", "role" to "owner", "space" to null)
        say(
            "WELCOME",
            id,
            mapOf(
                "major" to 1, "minor" to peer.minor, "version" to "0", "node" to peer.address, "limits" to emptyMap<String, Any>(),
                "user" to user, "writable" to peer.writable, "leader" to peer.leader,
            ),
        )
    }

    fun refuse(id: Long, code: String, detail: Map<String, Any?> = emptyMap(), retry: Boolean = false) {
        val error = mapOf("code" to code, "message" to "no", "status" to 409, "retry" to retry, "detail" to detail)
        say("ERROR", id, mapOf("error" to error, "results" to emptyList<Any>()))
    }

    fun answer(id: Long, value: Any?, seq: Long) {
        say("ANSWER", id, mapOf("results" to listOf(result("value", value)), "seq" to seq, "store" to "s", "epoch" to 1))
    }

    /** Answers everything until the client leaves. */
    suspend fun serve(value: Any?) {
        while (true) {
            val found = read() ?: break
            when (found.kind) {
                "RUN" -> answer(found.id, value, 7)
                "PING" -> say("PONG", found.id, null)
                "CANCEL" -> refuse(found.id, "Cancelled")
                "UNWATCH" -> say("ANSWER", found.id, mapOf("seq" to 9, "epoch" to 1))
                "BYE" -> break
            }
        }
        socket.close()
    }

    /** Ends the connection at once. */
    fun cut() {
        socket.setSoLinger(true, 0)
        socket.close()
    }
}

fun result(kind: String, value: Any? = null): Map<String, Any?> = mapOf("value" to value, "kind" to kind, "rows" to 0, "took" to 1.microseconds)

internal fun clientOf(
    address: String,
    password: String = "secret",
    tls: Tls? = null,
    timeout: Duration? = null,
    connectTimeout: Duration = PATIENCE,
    reads: Reads = Reads.LEADER,
    pulse: Pulse = Pulse(grace = PATIENCE),
    onConnection: ((ConnectionEvent) -> Unit)? = null,
): Client = Client(listOf(address), "root", password, null, tls, timeout, connectTimeout, reads, onConnection, null, pulse)

/** Runs a test with real time and threads, and leaves nothing running behind it. */
fun test(patience: Duration = PATIENCE, body: suspend CoroutineScope.() -> Unit): Unit =
    runBlocking {
        withTimeout(patience) {
            supervisorScope {
                try {
                    body()
                } finally {
                    currentCoroutineContext()[kotlinx.coroutines.Job]!!.children.forEach { it.cancel() }
                }
            }
        }
    }

/** Closes a client behind peers that answer what is left. */
suspend fun ends(client: Client, vararg spoken: Spoken) {
    coroutineScope {
        val serving = spoken.map { async { it.serve(null) } }
        client.close()
        serving.awaitAll()
    }
}

/** Returns what a call fails with. */
inline fun <reified T : Throwable> CoroutineScope.failing(crossinline call: suspend () -> Any?): Deferred<T> =
    async {
        val found =
            try {
                call()
            } catch (error: Throwable) {
                return@async error as? T ?: throw AssertionError("another error", error)
            }
        throw AssertionError("it has come to $found")
    }

suspend inline fun <reified T : Throwable> fails(call: suspend () -> Any?): T {
    val found =
        try {
            call()
        } catch (error: Throwable) {
            return error as? T ?: throw AssertionError("another error", error)
        }
    throw AssertionError("it has come to $found")
}

suspend fun refused(code: String, call: suspend () -> Any?): RefusedException = fails<RefusedException>(call).also { assertEquals(code, it.code) }

/** Waits for a condition that others bring about. */
suspend fun until(isMet: () -> Boolean) {
    withContext(Dispatchers.Default) { while (!isMet()) delay(1.milliseconds) }
}

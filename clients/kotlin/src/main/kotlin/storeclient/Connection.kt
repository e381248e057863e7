package storeclient

import jdk.net.ExtendedSocketOptions
import kotlinx.coroutines.CancellableContinuation
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Job
import kotlinx.coroutines.async
import kotlinx.coroutines.suspendCancellableCoroutine
import kotlinx.coroutines.withTimeoutOrNull
import java.io.IOException
import java.net.InetAddress
import java.net.InetSocketAddress
import java.net.Socket
import java.net.SocketTimeoutException
import java.security.cert.CertificateException
import java.util.concurrent.ScheduledExecutorService
import java.util.concurrent.ScheduledFuture
import java.util.concurrent.TimeUnit
import javax.net.ssl.SNIHostName
import javax.net.ssl.SSLException
import javax.net.ssl.SSLSocket
import kotlin.concurrent.thread
import kotlin.coroutines.resume
import kotlin.coroutines.resumeWithException
import kotlin.time.Duration

private const val CHUNK = 64 shl 10

/** Looks at the bytes to be written before they are: while they grow, others are about to ask. */
private const val GATHERING = 32

/** Credential, never printed. */
internal class Credential(val user: String?, val password: String?, val token: String?) {
    fun body(vararg before: Any?): Body = Body(*before, "user", user, "password", password, "token", token)
}

/** What all connections of a client share. */
internal class Settings(
    val credential: Credential,
    val tls: Tls?,
    val pulse: Pulse,
    val timer: ScheduledExecutorService,
    val scope: CoroutineScope,
)

/** A request: what to ask, how long, and what ends it. */
internal class Request(
    val kind: Kind,
    val body: Body?,
    /** Time after which it is given up; the node has its own. */
    val timeout: Duration? = null,
    /** True if it waits for something to come: the end of the client ends it. */
    val waits: Boolean = false,
    /** Has the node end the request once it is over. Its answer is waited for all the same. */
    val stop: Job? = null,
)

/** A request that a coroutine waits for. */
private class Asked(kind: Kind, waits: Boolean, private val waiter: CancellableContinuation<Any?>) : Call(kind, waits) {
    @Volatile
    var onSettled: (() -> Unit)? = null

    override fun settle(reply: Any?, error: Throwable?) {
        onSettled?.invoke()
        if (error == null) waiter.resume(reply) else waiter.resumeWithException(error)
    }
}

/** A PING of the connection itself: that something comes is enough. */
private class OwnPing : Call(Kind.PING) {
    override fun settle(reply: Any?, error: Throwable?) = Unit
}

/** One connection: a thread that reads, one that writes, and the exchange between. */
internal class Connection private constructor(
    private val raw: Socket,
    private val socket: Socket,
    private val settings: Settings,
    private val onEnd: ((Throwable?) -> Unit)?,
) {
    val exchange = Exchange(settings.pulse)
    lateinit var welcome: Welcome
        private set

    /** Completes when the connection has ended. */
    val ended = CompletableDeferred<Unit>()

    /** Cause of the end. */
    @Volatile
    var cause: Throwable? = null
        private set

    /** Number of AUTHs that were answered. */
    @Volatile
    var session = 0
        private set

    private var signing: Deferred<Throwable?>? = null
    private var signInError: Throwable? = null
    private val frames = Frames()

    val hasNoDelay: Boolean get() = raw.tcpNoDelay
    val isUsable: Boolean get() = exchange.isUsable
    val isLeaving: Boolean get() = exchange.isLeaving

    // --- asking ------------------------------------------------------------------------------------------

    /** Sends a request and waits for its reply. A cancelled caller leaves at once, and the node is told. */
    suspend fun ask(request: Request): Any? {
        val body = packBody(request.body)
        return suspendCancellableCoroutine { waiter ->
            val call = Asked(request.kind, request.waits, waiter)
            begin(call, body)
            if (request.timeout != null || request.stop != null) guard(call, request, waiter)
            waiter.invokeOnCancellation {
                exchange.giveUp(call)
                call.onSettled?.invoke()
            }
        }
    }

    /** Ends a request with its time or its stop. */
    private fun guard(call: Asked, request: Request, waiter: CancellableContinuation<Any?>) {
        val (timeout, stop) = request.timeout to request.stop
        val timer = timeout?.let { settings.timer.schedule({ expire(call, it) }, it.inWholeMicroseconds, TimeUnit.MICROSECONDS) }
        val handle = stop?.invokeOnCompletion { stop(call) }
        val dispose = {
            timer?.cancel(false)
            handle?.dispose()
            Unit
        }
        call.onSettled = dispose
        if (waiter.isCompleted) dispose()
    }

    private fun expire(call: Asked, timeout: Duration) {
        val error =
            when (exchange.giveUp(call)) {
                GivenUp.ANSWERED -> return
                GivenUp.WRITTEN -> unsure("the request was given up: no answer within $timeout")
                else -> unreached("the connection took nothing within $timeout")
            }
        call.settle(null, error)
    }

    private fun stop(call: Asked) {
        if (exchange.dropWaiting(call)) call.settle(null, cancelledUnsent()) else exchange.sendEnd(call)
    }

    /** Sends a request, or has it wait for room. What comes of it goes to the call. */
    fun begin(call: Call, body: ByteArray) {
        if (exchange.begin(call, body)) watch(settings.pulse.quiet)
    }

    private fun watch(time: Duration): ScheduledFuture<*> =
        settings.timer.schedule({ exchange.look(::OwnPing) { end(IOException(it)) }?.let { watch(it) } }, time.inWholeMicroseconds, TimeUnit.MICROSECONDS)

    /** Opens another session with a password: one AUTH for all requests that found the same session ended. */
    suspend fun signInAgain(credential: Credential, endedSession: Int) {
        val attempt =
            synchronized(frames) {
                if (session != endedSession) return signInError?.let { throw it } ?: Unit
                signing ?: settings.scope.async { authenticate(credential) }.also { signing = it }
            }
        attempt.await()?.let { throw it }
    }

    private suspend fun authenticate(credential: Credential): Throwable? {
        var isAnswered = true
        var refused: Throwable? = null
        try {
            ask(Request(Kind.AUTH, credential.body(), settings.pulse.grace))
        } catch (error: StoreException) {
            if (error is Refusal) refused = error else isAnswered = false
        } catch (_: NotSent) {
            isAnswered = false // the connection has gone, and the next one signs in by itself
        }
        synchronized(frames) {
            signing = null
            if (isAnswered) {
                signInError = refused
                session++
            }
        }
        return refused
    }

    // --- threads -----------------------------------------------------------------------------------------

    /** Starts to read and to write. What was lost before is told behind that. */
    fun start() {
        val name = "storeclient ${raw.remoteSocketAddress}"
        thread(name = "$name reader", isDaemon = true) { guarded(::readAll) }
        thread(name = "$name writer", isDaemon = true) { guarded(::writeAll) }
    }

    private fun guarded(work: () -> Unit) {
        try {
            work()
        } catch (error: IOException) {
            end(error)
        } catch (error: StoreException) {
            end(error)
        } catch (error: RuntimeException) {
            end(error) // whatever it is: no request waits for ever
            throw error
        }
    }

    private fun writeAll() {
        val to = socket.getOutputStream()
        while (exchange.awaitOutput()) {
            gather()
            val taken = exchange.takeOutput()
            to.write(taken.array, 0, taken.size)
        }
    }

    /** Waits while others add requests: what is asked at one time leaves in one write. */
    private fun gather() {
        var before = exchange.outSize
        for (look in 0 until GATHERING) {
            Thread.yield()
            val size = exchange.outSize
            if (size == before || size > CHUNK) return
            before = size
        }
    }

    private fun readAll() {
        while (true) {
            while (true) onMessage(frames.next() ?: break)
            if (!receive()) return end(null)
        }
    }

    private val chunk = ByteArray(CHUNK)

    private fun receive(): Boolean {
        exchange.awaitReading()
        val count = socket.getInputStream().read(chunk)
        if (count > 0) {
            exchange.heard = System.nanoTime()
            frames.add(chunk, count)
        }
        return count >= 0
    }

    private fun onMessage(message: Frame) {
        when (val received = exchange.onMessage(message)) {
            Received.Nothing -> Unit

            Received.Bye -> {
                exchange.onBye()
                part()
            }

            is Received.Part -> if (!received.call.onMessage(message.body, message.size)) throw unfit(received.call, message.kind)

            is Received.Last -> reply(received.call, message)
        }
    }

    private fun reply(call: Call, message: Frame) {
        val found =
            try {
                readReply(call, message)
            } catch (error: StoreException) {
                return call.settle(null, error)
            }
        call.settle(found, null)
    }

    private fun readReply(call: Call, message: Frame): Any? {
        val body = message.body
        return when (message.kind) {
            Kind.VALUE if call.kind == Kind.KV || call.kind == Kind.TOPIC || call.kind == Kind.VAULT -> body
            Kind.ANSWER if call.kind == Kind.RUN -> readAnswer(body)
            Kind.ANSWER if call.kind == Kind.WATCH -> null
            Kind.ERROR -> throw readError(body)
            Kind.WELCOME if call.kind == Kind.AUTH -> readWelcome(body)
            Kind.PONG if call.kind == Kind.PING -> null
            else -> throw unfit(call, message.kind)
        }
    }

    // --- the end -----------------------------------------------------------------------------------------

    /** Ends the connection once the node has answered what is open and has closed. One that does not close is left. */
    private fun part() {
        exchange.whenQuiet {
            settings.timer.schedule({ end(null) }, settings.pulse.grace.inWholeMicroseconds, TimeUnit.MICROSECONDS)
        }
    }

    /** Ends what only waits for something to come, waits for all answers, says BYE, and ends the connection. */
    suspend fun close() {
        exchange.leave()
        val quiet = CompletableDeferred<Unit>()
        exchange.whenQuiet { quiet.complete(Unit) }
        quiet.await()
        exchange.sayBye()
        withTimeoutOrNull(settings.pulse.grace) { ended.await() }
        end(null)
    }

    /** Ends the connection now. What is open and was written has an unknown outcome. */
    fun end(cause: Throwable?) {
        if (!exchange.isOver) this.cause = this.cause ?: cause
        if (!exchange.end(cause)) return
        raw.close()
        if (isWelcome) onEnd?.invoke(cause)
        ended.complete(Unit)
    }

    @Volatile
    private var isWelcome = false

    private fun greet() {
        val head = arrayOf("magic", "STORE", "major", 1, "minor", listOf(0, MINOR), "client", "storeclient-kotlin/$VERSION")
        exchange.greet(packBody(settings.credential.body(*head)))
        val hello = exchange.takeOutput()
        socket.getOutputStream().write(hello.array, 0, hello.size)
        while (true) {
            val message = frames.next()
            if (message != null) return onGreeting(message)
            if (!receive()) throw IOException("the peer closed the connection before its welcome")
        }
    }

    private fun onGreeting(message: Frame) {
        when (message.kind) {
            Kind.WELCOME -> welcome = readWelcome(message.body)
            Kind.REFUSED, Kind.ERROR -> throw readError(message.body)
            else -> throw broken("the node answered HELLO with ${message.kind}")
        }
    }

    companion object {
        /**
         * Makes a connection that has been welcomed. It blocks; [opened] gets the socket, which a caller may close to
         * end that.
         */
        fun dial(
            host: String,
            port: Int,
            settings: Settings,
            within: Duration,
            opened: (Socket) -> Unit,
            onEnd: ((Throwable?) -> Unit)? = null,
        ): Connection {
            val deadline = System.nanoTime() + within.inWholeNanoseconds
            val left = { ((deadline - System.nanoTime()) / NANOS_OF_MILLI).coerceAtLeast(1) }
            val raw = dialTcp(host, port, left, opened)
            val late = settings.timer.schedule({ raw.close() }, left(), TimeUnit.MILLISECONDS)
            var conn: Connection? = null
            try {
                val socket = if (settings.tls == null) raw else secured(raw, host, settings.tls)
                conn = Connection(raw, socket, settings, onEnd)
                conn.greet()
                check(late.cancel(false)) { "no welcome within $within" }
                conn.isWelcome = true
                return conn
            } catch (error: IOException) {
                throw if (left() <= 1) SocketTimeoutException("no welcome within $within").apply { initCause(error) } else error
            } catch (error: IllegalStateException) {
                throw SocketTimeoutException(error.message).apply { initCause(error) }
            } finally {
                late.cancel(false)
                if (conn?.isWelcome != true) raw.close()
            }
        }

        private fun dialTcp(host: String, port: Int, left: () -> Long, opened: (Socket) -> Unit): Socket {
            val addresses = InetAddress.getAllByName(host)
            var failure: IOException? = null
            for ((n, address) in addresses.withIndex()) {
                val socket = Socket()
                opened(socket)
                try {
                    socket.connect(InetSocketAddress(address, port), (left() / (addresses.size - n)).coerceAtLeast(1).toInt())
                    return socket.also(::tune)
                } catch (error: IOException) {
                    socket.close()
                    failure?.let(error::addSuppressed)
                    failure = error
                }
            }
            throw failure ?: IOException("no address of $host is known")
        }

        private fun tune(socket: Socket) {
            socket.tcpNoDelay = true
            socket.keepAlive = true
            val options =
                mapOf(
                    ExtendedSocketOptions.TCP_KEEPIDLE to KEEP_IDLE,
                    ExtendedSocketOptions.TCP_KEEPINTERVAL to KEEP_INTERVAL,
                    ExtendedSocketOptions.TCP_KEEPCOUNT to KEEP_COUNT,
                )
            for ((option, value) in options) if (option in socket.supportedOptions()) socket.setOption(option, value)
        }

        private fun secured(raw: Socket, host: String, tls: Tls): Socket {
            val socket = tls.context.socketFactory.createSocket(raw, host, raw.port, false) as SSLSocket
            val parameters = socket.sslParameters
            parameters.endpointIdentificationAlgorithm = "HTTPS" // the JDK does not check the name by itself
            if (!isAddress(host)) parameters.serverNames = listOf(SNIHostName(host))
            socket.sslParameters = parameters
            try {
                socket.startHandshake()
            } catch (error: SSLException) {
                throw if (generateSequence<Throwable>(error) { it.cause }.any { it is CertificateException }) UntrustedException(error) else error
            }
            return socket
        }

        private const val KEEP_IDLE = 30
        private const val KEEP_INTERVAL = 10
        private const val KEEP_COUNT = 3
        private const val NANOS_OF_MILLI = 1_000_000L
    }
}

/** True of an IP address, which is no host name. */
private fun isAddress(host: String): Boolean = ':' in host || host.all { it.isDigit() || it == '.' }

private fun cancelledUnsent(): RefusedException =
    RefusedException(RefusalFields(Code.CANCELLED, "it was ended before it was sent", status = 408, retry = false))

package storeclient

import app.cash.turbine.test
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.yield
import org.junit.jupiter.api.Test
import java.net.InetSocketAddress
import java.net.Socket
import java.nio.file.FileAlreadyExistsException
import java.nio.file.Files
import java.nio.file.Path
import java.security.KeyStore
import java.time.Instant
import java.util.concurrent.ConcurrentLinkedQueue
import javax.net.ssl.KeyManagerFactory
import javax.net.ssl.SSLContext
import kotlin.io.path.createTempDirectory
import kotlin.io.path.listDirectoryEntries
import kotlin.io.path.name
import kotlin.io.path.readLines
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlin.test.assertIs
import kotlin.test.assertNotEquals
import kotlin.test.assertNotNull
import kotlin.test.assertNull
import kotlin.test.assertTrue
import kotlin.test.fail
import kotlin.time.Duration
import kotlin.time.Duration.Companion.hours
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.minutes
import kotlin.time.Duration.Companion.seconds
import java.time.Duration as JavaDuration

private val AT: Instant = Instant.ofEpochSecond(1)

/** The rules of docs/clients.md, before a peer. The number of a rule is in the name of its test. */
class RulesTest {
    @Test
    fun `C1 C51 one connection for all, and another behind it`() = test {
        val node = Peer()
        val events = ConcurrentLinkedQueue<String>()
        val client =
            clientOf(node.address, onConnection = {
                events.add("${it.change} ${it.version ?: (it.cause as Refusal).code}")
                error("a report disturbs no request")
            })
        for (round in 1..2) {
            val asked = List(20) { async { client.query("RETURN 1") } }
            val one = node.greet()
            for (each in asked) one.answer(one.wants("RUN").id, 1, 1)
            assertEquals(List<Any?>(20) { 1L }, asked.awaitAll())
            one.refuse(0, "Busy")
            until { events.size == 2 * round }
        }
        client.close()
        assertEquals(listOf("CONNECTED 0", "LOST Busy", "RECONNECTED 0", "LOST Busy"), events.toList())
    }

    @Test
    fun `C2 addresses`() {
        val given = { address: String -> Client(address).nodes.given }
        assertEquals("a:8001", given("a"))
        assertEquals("127.0.0.1:9", given(":9"))
        assertEquals("[::1]:9, b:8", given("[::1]:9, b:8,b:8"))
        for (wrong in listOf("a:b", "a:0", "a:65536", "::1", "[::1", "a:1:2", "[]x")) {
            assertTrue("is no address" in assertFailsWith<IllegalArgumentException> { given(wrong) }.message!!)
        }
        assertFailsWith<IllegalArgumentException> { given((1..65).joinToString { "a:$it" }) }
        assertFailsWith<IllegalArgumentException> { Client("a,b", token = "t") }
    }

    @Test
    fun `C3 a search goes on until a node is there`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val asked = async { client.query("RETURN 1") }
        repeat(3) { node.accept().cut() }
        val serving = node.greet().let { async { it.serve(1) } }
        assertEquals(1L, asked.await())
        client.close()
        serving.await()
    }

    @Test
    fun `C3 no node is Unreachable`() = test {
        val bound = Socket().apply { bind(InetSocketAddress("127.0.0.1", 0)) } // its port is no other's, and nothing listens there
        val client = clientOf("127.0.0.1:${bound.localPort}", connectTimeout = 50.milliseconds)
        fails<UnreachableException> { client.connect() }
        client.close()
        client.close()
        fails<ClosedException> { client.run("RETURN 1") }
        bound.close()
    }

    @Test
    fun `C4 a refused sign-in ends the search, and a cancelled caller leaves it`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val asked = failing<RefusedException> { client.run("RETURN 1") }
        val left = launch { client.run("RETURN 2") }
        val one = node.accept()
        one.wants("HELLO")
        left.cancelAndJoin()
        one.say("REFUSED", 0, mapOf("error" to mapOf("code" to "SignInRefused", "message" to "no", "status" to 401, "retry" to false)))
        assertEquals(Code.SIGN_IN_REFUSED, asked.await().code)
        client.close()
    }

    @Test
    fun `C5 sockets have keep-alive and no delay`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val connecting = async { client.connect() }
        val one = node.greet()
        connecting.await()
        // Its own port alone may be that of a closed connection to another peer too.
        val (own, peer) = listOf(one.socket.port, one.socket.localPort).map { ":" + it.toString(16).uppercase().padStart(4, '0') }
        val lines = (Path.of("/proc/net/tcp6").readLines() + Path.of("/proc/net/tcp").readLines()).map { it.trim().split(Regex("\\s+")) }
        val (kind, left) = lines.first { it[1].endsWith(own) && it[2].endsWith(peer) }[5].split(":")
        assertEquals("02", kind) // keep-alive
        assertTrue(left.toInt(16) <= 30 * 100, left) // in hundredths of a second
        assertTrue(client.nodes.home!!.conn!!.hasNoDelay)
        ends(client, one)
    }

    @Test
    fun `C6 certificates are checked`() = test {
        val folder = createTempDirectory("storeclient")
        val store = folder.resolve("store")
        val keytool = "${System.getProperty("java.home")}/bin/keytool"
        val made = listOf("-genkeypair", "-alias", "node", "-keyalg", "EC", "-dname", "CN=node", "-ext", "SAN=ip:127.0.0.1")
        val secret = listOf("-keystore", "$store", "-storepass", "secret")
        fun keytool(words: List<String>) = assertEquals(0, ProcessBuilder(listOf(keytool) + words + secret).start().waitFor())
        keytool(made)
        keytool(listOf("-exportcert", "-rfc", "-alias", "node", "-file", "$folder/certificate"))
        val keys = KeyStore.getInstance(store.toFile(), "secret".toCharArray())
        val managers = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm()).apply { init(keys, "secret".toCharArray()) }
        val context = SSLContext.getInstance("TLS").apply { init(managers.keyManagers, null, null) }
        val node = Peer(context.serverSocketFactory) // of 127.0.0.1, and not of localhost
        val trusting = Tls.trusting(folder.resolve("certificate"))
        val client = clientOf(node.address, tls = trusting)
        val asked = async { client.query("RETURN 1") }
        val serving = node.greet().let { async { it.serve(1) } }
        assertEquals(1L, asked.await())
        client.close()
        serving.await()
        for ((address, tls) in listOf("localhost:${node.port}" to trusting, node.address to Tls.system())) {
            val accepting = launch { node.accept() }
            val wrong = clientOf(address, tls = tls)
            assertTrue("is not trusted" in fails<UnreachableException> { wrong.connect() }.message!!)
            wrong.close()
            accepting.join()
        }
    }

    @Test
    fun `C7 what a node is too old for is not sent`() = test {
        val node = Peer().also { it.minor = 0 }
        val client = clientOf(node.address)
        val first = failing<RefusedException> { client.run("SELECT 1", after = 7) }
        val one = node.accept()
        assertEquals(listOf(0L, 10L), one.wants("HELLO").body["minor"])
        one.welcome(0)
        val refusals =
            listOf(
                7 to first.await(),
                8 to fails<RefusedException> { client.run("SELECT 1", current = true) },
                6 to fails<RefusedException> { client.storeSeal.unseal("secret") },
                1 to fails<RefusedException> { client.database("a", "b").watch("c").commits().first() },
            )
        for ((minor, error) in refusals) {
            assertEquals(Code.VERSION_NOT_SUPPORTED, error.code)
            assertTrue(Regex("version 0 .*came with $minor$").containsMatchIn(error.text), error.text)
        }
        val asked = async { client.run("RETURN 1") }
        val run = one.wants("RUN")
        assertEquals("RETURN 1", run.body["script"])
        one.answer(run.id, null, 1)
        asked.await()
        ends(client, one)
    }

    @Test
    fun `C8 what is not the protocol ends the connection`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        var lost = failing<OutcomeUnknownException> { client.run("RETURN 1") }
        val one = node.greet()
        one.say("CHANGE", one.wants("RUN").id, mapOf("type" to "beat"))
        assertIs<ProtocolBrokenException>(lost.await().cause)
        var asked = failing<ProtocolBrokenException> { client.run("RETURN 1") }
        val other = node.greet()
        other.say("PONG", other.wants("RUN").id, null) // that request alone fails
        asked.await()
        val wrong =
            listOf(
                mapOf("results" to 1, "seq" to 1),
                mapOf("results" to listOf(1), "seq" to 1),
                mapOf("results" to emptyList<Any>(), "seq" to "1"),
                mapOf("results" to emptyList<Any>()),
                mapOf("results" to emptyList<Any>(), "seq" to 1, "epoch" to "x"),
                mapOf("results" to listOf(result("value") + ("changed" to "x")), "seq" to 1),
            )
        for (body in wrong) {
            asked = failing { client.run("RETURN 1") }
            other.say("ANSWER", other.wants("RUN").id, body)
            asked.await()
        }
        other.say("PONG", 99, null) // its id is not open
        lost = failing { client.run("RETURN 1") }
        other.wants("RUN")
        other.write(byteArrayOf(1, 0, 0, 1))
        assertTrue("a frame of 16777217 bytes" in lost.await().cause!!.message!!)
        client.close()
    }

    @Test
    fun `C9 C47 nothing that is printed holds a secret`() = test {
        val secret = "open-sesame"
        val node = Peer()
        val client = clientOf(node.address, password = secret)
        val db = client.database("a", "b")
        val unsealing = failing<OutcomeUnknownException> { client.storeSeal.unseal(secret) }
        val one = node.greet()
        assertEquals(secret, one.wants("VAULT").body["passphrase"])
        one.cut()
        val unknown = unsealing.await()
        val writing = failing<RefusedException> { db.vault("c").write("my id", secret) }
        val two = node.greet()
        val run = two.wants("RUN")
        assertEquals("WRITE \$id IN VAULT `c` VALUE \$value", run.body["script"])
        assertEquals(mapOf("id" to "my id", "value" to secret), run.body["params"])
        two.refuse(run.id, "Sealed")
        val revealing = async { db.vault("c").reveal("my id") }
        two.answer(two.wants("RUN").id, mapOf("id" to "my id", "value" to secret, "version" to 1, "at" to AT), 2)
        val revealed = revealing.await()
        assertEquals(secret, revealed.value)
        val other = Client(node.address, token = secret)
        val printed = listOf(client, client.blocking(), other, db, db.vault("c"), client.storeSeal, unknown, writing.await(), revealed)
        for (each in printed) {
            val text = if (each is Throwable) each.stackTraceToString() else each.toString()
            assertFalse(secret in text, text)
        }
        ends(client, two)
    }

    @Test
    fun `C10 a session that ended`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val together = List(8) { async { client.query("RETURN 1") } }
        val one = node.greet()
        for (each in together) one.refuse(one.wants("RUN").id, "SessionEnded")
        val auth = one.wants("AUTH") // one for all of them
        assertEquals("secret", auth.body["password"])
        one.welcome(auth.id)
        for (each in together) one.answer(one.wants("RUN").id, 1, 3)
        assertEquals(List<Any?>(8) { 1L }, together.awaitAll())
        var asked = failing<RefusedException> { client.run("CREATE a; RETURN 1") }
        one.refuse(one.wants("RUN").id, "SessionEnded", mapOf("committed" to 4))
        assertEquals(Code.SESSION_ENDED, asked.await().code)
        asked = failing { client.run("RETURN 1") }
        one.refuse(one.wants("RUN").id, "SessionEnded")
        one.refuse(one.wants("AUTH").id, "SignInRefused")
        assertEquals(Code.SIGN_IN_REFUSED, asked.await().code)
        ends(client, one)
    }

    @Test
    fun `C11 ids are counted on each connection`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        repeat(2) {
            val running = async { client.run("RETURN 1") }
            val one = node.greet()
            val run = one.wants("RUN")
            one.answer(run.id, null, 1)
            running.await()
            val getting = async { client.database("a", "b").cache("c").get("k") }
            val get = one.wants("KV")
            one.say("VALUE", get.id, null)
            assertNull(getting.await())
            assertEquals(listOf(1L, 2L), listOf(run.id, get.id))
            val ended = client.nodes.home!!.conn!!.ended
            one.cut()
            ended.await()
        }
        client.close()
    }

    @Test
    fun `C12 requests do not wait for each other, and leave in one write`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val connecting = async { client.connect() }
        val one = node.greet()
        connecting.await()
        val before = one.reads
        val asked = List(500) { n -> async { client.query("RETURN $n") } }
        val runs = List(500) { one.wants("RUN") }
        assertTrue(one.reads - before < 50, "they came in ${one.reads - before} reads")
        assertEquals(List(500) { "RETURN $it" }, runs.map { it.body["script"] })
        for (run in runs.reversed()) one.answer(run.id, run.body["script"], 2)
        assertEquals(List<Any?>(500) { "RETURN $it" }, asked.awaitAll())
        ends(client, one)
    }

    // A peer that reads nothing: what stands in the buffers of both systems is much less than one request.
    @Test
    fun `C13 C14 C18 what is not written`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val connecting = async { client.connect() }
        val first = node.greet()
        connecting.await()
        val exchange = client.nodes.home!!.conn!!.exchange
        first.isStopped = true
        val long = " ".repeat(15 shl 20)
        val stopping = async { client.ping() } // its frame is the last that the peer reads
        until { exchange.outSize == 0 }
        val written = failing<OutcomeUnknownException> { client.run("CREATE written$long") }
        yield()
        until { exchange.outSize == 0 }
        val queued = async { client.query("CREATE queued$long") }
        val waiting = async { client.query("CREATE waiting") }
        val cancelled = async { client.run("CREATE cancelled") }
        yield()
        yield()
        cancelled.cancelAndJoin()
        first.cut()
        written.await()
        val second = node.greet()
        val scripts = HashSet<String>()
        while (scripts.size < 2) {
            val one = second.next()
            if (one.kind == "PING") second.say("PONG", one.id, null) else second.answer(one.id, (one.body["script"] as String).trim().also(scripts::add), 1)
        }
        assertEquals(listOf<Any?>("CREATE queued", "CREATE waiting"), listOf(queued, waiting).awaitAll())
        stopping.cancelAndJoin()
        ends(client, second)
    }

    @Test
    fun `C14 a cancelled call`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        var asked = async { client.run("SLOW") }
        val one = node.greet()
        val run = one.wants("RUN")
        asked.cancelAndJoin()
        assertEquals(run.id, one.wants("CANCEL").id)
        one.refuse(run.id, "Cancelled") // dropped
        val taking = launch { client.database("a", "b").topic("c").group("d").take(wait = 1.minutes) }
        val take = one.wants("TOPIC")
        taking.cancelAndJoin()
        assertEquals(take.id, one.wants("CANCEL").id)
        val getting = launch { client.database("a", "b").cache("c").get("k") }
        one.wants("KV")
        getting.cancelAndJoin() // it runs on
        asked = async(start = CoroutineStart.UNDISPATCHED) { client.run("CREATE b") }
        asked.cancel() // written or not, it ends at once
        asked.join()
        val next = async { client.query("RETURN 2") }
        while (true) {
            val other = one.next()
            if (other.body["script"] == "RETURN 2") {
                one.answer(other.id, 2, 1)
                break
            }
        }
        assertEquals(2L, next.await())
        ends(client, one)
    }

    @Test
    fun `C14 what is taken back before it is written leaves no byte`() {
        val exchange = Exchange(Pulse())
        val calls = List(3) { Silent() }
        calls.forEach { exchange.begin(it, packBody(Body("script", "RETURN ${it.hashCode()}"))) }
        assertEquals(GivenUp.UNSENT, exchange.giveUp(calls[1]))
        assertEquals(GivenUp.UNSENT, exchange.giveUp(calls[2]))
        assertEquals(GivenUp.ANSWERED, exchange.giveUp(calls[1]))
        val frames = Bytes().also { addFrame(it, Kind.RUN, 1, packBody(Body("script", "RETURN ${calls[0].hashCode()}"))) }
        val taken = exchange.takeOutput()
        assertTrue(frames.array.copyOf(frames.size).contentEquals(taken.array.copyOf(taken.size)))
        assertEquals(GivenUp.WRITTEN, exchange.giveUp(calls[0]))
    }

    private class Silent : Call(Kind.RUN) {
        override fun settle(reply: Any?, error: Throwable?) = Unit
    }

    @Test
    fun `C15 a timeout is the node's first`() = test {
        val node = Peer()
        val client = clientOf(node.address, timeout = 1.hours)
        val asked = failing<RefusedException> { client.run("SLOW") }
        val one = node.greet()
        val run = one.wants("RUN")
        assertEquals(JavaDuration.ofHours(1), run.body["timeout"])
        one.refuse(run.id, "StatementTimeout")
        assertEquals(Code.STATEMENT_TIMEOUT, asked.await().code)
        val taking = failing<RefusedException> { client.database("a", "b").topic("c").group("d").take(wait = 1.minutes) }
        val take = one.wants("TOPIC")
        assertEquals(listOf<Any?>(JavaDuration.ofMinutes(61), JavaDuration.ofMinutes(1)), listOf(take.body["timeout"], take.body["wait"]))
        one.refuse(take.id, "Unknown")
        taking.await()
        ends(client, one)
    }

    @Test
    fun `C15 behind the node's own answer the request is given up, and the connection kept`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val connecting = async { client.connect() }
        val one = node.greet()
        connecting.await()
        val conn = client.nodes.home!!.conn!!
        val asked = failing<OutcomeUnknownException> { conn.ask(Request(Kind.RUN, Body("script", "SLOW"), timeout = 200.milliseconds)) }
        val run = one.wants("RUN")
        asked.await()
        assertEquals(run.id, one.wants("CANCEL").id)
        assertTrue(conn.isUsable)
        ends(client, one)
    }

    @Test
    fun `C16 a peer that vanished`() = test {
        val node = Peer()
        var client = clientOf(node.address, pulse = Pulse(quiet = 1.milliseconds, answer = PATIENCE, grace = PATIENCE))
        val asked = async { client.query("SLOW") }
        val one = node.greet()
        val run = one.wants("RUN")
        one.say("PONG", one.wants("PING").id, null) // it is there as long as it answers
        one.answer(run.id, 1, 2)
        assertEquals(1L, asked.await())
        ends(client, one)
        client = clientOf(node.address, pulse = Pulse(quiet = 1.milliseconds, answer = 1.milliseconds, grace = PATIENCE))
        val lost = failing<OutcomeUnknownException> { client.run("SLOW") }
        val greeting = launch { while (true) node.greet() } // one whose request was not written yet is lost too
        assertTrue("PING" in lost.await().cause!!.message!!)
        greeting.cancelAndJoin()
        client.close()
    }

    @Test
    fun `C16 no PING behind a large request, and none behind BYE`() {
        var now = 0L
        val exchange = Exchange(Pulse(), now = { now })
        val small = Silent()
        val look = { exchange.look({ Silent() }, { throw AssertionError(it) }) }
        assertNull(look()) // nothing is open
        exchange.begin(small, ByteArray(10))
        now += 20.seconds.inWholeNanoseconds
        exchange.begin(Silent(), ByteArray(5000))
        val before = exchange.outSize
        assertEquals(20.seconds, look())
        assertEquals(before, exchange.outSize)
        exchange.onBye()
        assertEquals(60.seconds, look())
        now += 60.seconds.inWholeNanoseconds
        assertTrue("BYE" in assertFailsWith<AssertionError> { look() }.message!!)
    }

    @Test
    fun `C17 close ends what only waits`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val reading = failing<ClosedException> { client.database("a", "b").topic("c").read(wait = 1.minutes) }
        val one = node.greet()
        val read = one.wants("RUN")
        val slow = async { client.query("CREATE slow") }
        val run = one.wants("RUN")
        val closed = async { client.close() }
        assertEquals(read.id, one.wants("CANCEL").id)
        one.refuse(read.id, "Cancelled")
        reading.await()
        fails<ClosedException> { client.run("RETURN 1") }
        one.answer(run.id, "done", 3)
        assertEquals("done", slow.await())
        one.wants("BYE")
        one.socket.close()
        closed.await()
        client.close()
        val searching = clientOf("127.0.0.1:1")
        val waiting = failing<ClosedException> { searching.query("RETURN 1") }
        yield()
        searching.close()
        waiting.await()
    }

    @Test
    fun `C19 C20 what was sent is sent again only if it is repeatable`() = test {
        for (isRepeatable in listOf(false, true)) {
            val node = Peer()
            val client = clientOf(node.address)
            val lost = if (isRepeatable) null else failing<OutcomeUnknownException> { client.query("CREATE a") }
            val again = if (isRepeatable) async { client.query("CREATE a", repeatable = true) } else null
            val first = node.greet()
            first.wants("RUN")
            first.cut()
            lost?.await()
            val asked = again ?: async { client.query("RETURN 2") }
            val second = node.greet()
            val run = second.wants("RUN")
            assertEquals(if (isRepeatable) "CREATE a" else "RETURN 2", run.body["script"])
            second.answer(run.id, 2, 3)
            assertEquals(2L, asked.await())
            ends(client, second)
        }
    }

    @Test
    fun `C20 the ninth break is reported`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val asked = failing<OutcomeUnknownException> { client.run("RETURN 1", repeatable = true) }
        repeat(9) {
            val one = node.greet()
            one.wants("RUN")
            one.cut()
        }
        asked.await()
        client.close()
    }

    @Test
    fun `C21 the node's BYE`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val slow = async { client.query("SLOW") }
        val first = node.greet()
        val held = first.wants("RUN")
        val crossing = async { client.query("CROSSING") }
        val crossed = first.wants("RUN")
        first.say("BYE", 0, null)
        first.refuse(crossed.id, "Draining")
        first.wants("BYE")
        val second = node.greet()
        val again = second.wants("RUN")
        assertEquals("CROSSING", again.body["script"])
        second.answer(again.id, "elsewhere", 4)
        assertEquals("elsewhere", crossing.await())
        first.answer(held.id, "in time", 3)
        assertEquals("in time", slow.await())
        first.socket.close()
        ends(client, second)
    }

    @Test
    fun `C22 C49 a refusal is an answer, with all of its fields`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val asked = failing<RefusedException> { client.run("CREATE a; CREATE b", repeatable = true) }
        val one = node.greet()
        val fields =
            mapOf(
                "code" to "OfALaterVersion", "message" to "no", "status" to 418, "retry" to true, "detail" to mapOf("committed" to 7),
                "request" to "r-1", "statement" to 2, "line" to 3, "column" to 4,
            )
        one.say("ERROR", one.wants("RUN").id, mapOf("error" to fields, "results" to listOf(result("value", "a") + ("changed" to 1))))
        val error = asked.await()
        assertTrue(error.isRefused("OfALaterVersion"))
        assertEquals(listOf<Any?>("no", 418, true, mapOf("committed" to 7L)), listOf(error.text, error.status, error.retry, error.detail))
        assertEquals(listOf<Any?>("r-1", 2, 3, 4), listOf(error.request, error.statement, error.line, error.column))
        assertEquals(listOf<Any?>("a", 1L), error.results.single().let { listOf(it.value, it.changed) })
        assertEquals(7, error.committed)
        val draining = failing<RefusedException> { client.run("RETURN 1", repeatable = true) }
        one.refuse(one.wants("RUN").id, "Draining") // without a BYE
        assertEquals(Code.DRAINING, draining.await().code)
        ends(client, one)
    }

    @Test
    fun `C23 the node's last word is the cause of the end`() = test {
        for (code in listOf("Draining", "NotWritable", "SessionEnded")) {
            val node = Peer()
            val client = clientOf(node.address)
            val asked = failing<OutcomeUnknownException> { client.run("CREATE a") }
            val one = node.greet()
            one.wants("RUN")
            one.refuse(0, code)
            assertTrue(asked.await().cause!!.isRefused(code))
            val repeatable = async { client.query("SELECT 1", repeatable = true) }
            val two = node.greet()
            two.wants("RUN")
            two.refuse(0, code)
            val three = node.greet()
            three.answer(three.wants("RUN").id, "again", 2)
            assertEquals("again", repeatable.await())
            ends(client, three)
        }
    }

    @Test
    fun `C24 C25 the leader is followed`() = test {
        val old = Peer().also { it.writable = false }
        val lead = Peer()
        old.leader = listOf(lead.address)
        val client = clientOf("${old.address}, ${lead.address}")
        var asked = async { client.query("CREATE a") }
        val serving = old.greet().let { launch { it.serve(null) } }
        val one = lead.greet()
        one.answer(one.wants("RUN").id, "led", 5)
        assertEquals("led", asked.await())
        asked = async { client.query("CREATE b") } // the leader changes, for a moment to no node
        one.refuse(one.wants("RUN").id, "NotWritable", mapOf("leader" to emptyList<String>()))
        val other = launch { one.serve("was the leader") }
        assertNotEquals("led", asked.await())
        client.close()
        joinAll(serving, other)
    }

    @Test
    fun `C24 one node is asked whatever its role`() = test {
        val node = Peer().also { it.writable = false }
        node.leader = listOf("127.0.0.1:1")
        val client = clientOf(node.address)
        val asked = failing<RefusedException> { client.run("CREATE a") }
        val one = node.greet()
        one.refuse(one.wants("RUN").id, "NotWritable", mapOf("leader" to listOf("127.0.0.1:1")))
        assertEquals(Code.NOT_WRITABLE, asked.await().code)
        ends(client, one)
    }

    @Test
    fun `C26 C27 reads anywhere come behind what was seen`() = test {
        val lead = Peer()
        val other = Peer().also { it.writable = false }
        other.leader = listOf(lead.address)
        val client = clientOf("${lead.address},${other.address}", reads = Reads.ANY)
        val written = async { client.run("CREATE a") }
        val one = lead.greet()
        one.answer(one.wants("RUN").id, null, 41)
        written.await()
        val serving = launch { one.serve("lead") }
        assertEquals("lead", client.query("SELECT 1")) // the other is connected meanwhile
        val two = other.greet()
        until { client.nodes.all.all { it.usable != null } }
        val reads = List(4) { async { client.query("SELECT 1") } }
        repeat(2) {
            val run = two.wants("RUN")
            assertEquals(41L, run.body["after"])
            two.refuse(run.id, "StatementTimeout", mapOf("after" to 41, "seq" to 40)) // it is behind: home is asked
        }
        assertEquals(List<Any?>(4) { "lead" }, reads.awaitAll())
        assertEquals("lead", client.query("SELECT 1")) // it is left alone
        ends(client, two)
        serving.join()
    }

    @Test
    fun `C28 a moment is read where it was made`() = test {
        val maker = Peer()
        val lead = Peer()
        val client = clientOf("${maker.address},${lead.address}")
        val making = async { client.database("a", "b").moment() }
        val one = maker.greet()
        var run = one.wants("RUN")
        assertEquals(listOf<Any?>("new", JavaDuration.ofMinutes(1)), listOf(run.body["moment"], run.body["keep"]))
        one.say("ANSWER", run.id, mapOf("results" to emptyList<Any>(), "seq" to 4, "store" to "s", "epoch" to 1, "moment" to "m-1"))
        val moment = making.await()
        val written = async { client.run("CREATE a") }
        one.refuse(one.wants("RUN").id, "NotWritable", mapOf("leader" to listOf(lead.address)))
        val two = lead.greet()
        two.answer(two.wants("RUN").id, null, 5)
        written.await()
        val read = async { moment.query("SELECT 1") }
        run = one.wants("RUN")
        assertEquals("m-1", run.body["moment"])
        one.answer(run.id, "then", 4)
        assertEquals("then", read.await())
        ends(client, one, two)
    }

    @Test
    fun `C29 a node of another store is read no more`() = test {
        val lead = Peer()
        val other = Peer().also { it.writable = false }
        val client = clientOf("${lead.address},${other.address}", reads = Reads.ANY)
        val written = async { client.run("CREATE a") }
        val one = lead.greet()
        one.answer(one.wants("RUN").id, null, 4)
        written.await()
        val serving = launch { one.serve("lead") }
        assertEquals("lead", client.query("SELECT 1"))
        val two = other.greet()
        until { client.nodes.all.all { it.usable != null } }
        val reads = List(2) { async { runCatching { client.query("SELECT 1") } } }
        two.say("ANSWER", two.wants("RUN").id, mapOf("results" to emptyList<Any>(), "seq" to 4, "store" to "another", "epoch" to 1))
        assertIs<ProtocolBrokenException>(reads.awaitAll().single { it.isFailure }.exceptionOrNull())
        repeat(4) { assertEquals("lead", client.query("SELECT 1")) }
        ends(client, two)
        serving.join()
    }

    @Test
    fun `C32 C33 a request names its place and its values`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val db = client.database("shop", "main")
        val running = async { db.run("RETURN \$n", mapOf("n" to "'; DELETE item")) }
        val one = node.greet()
        val run = one.wants("RUN")
        val wanted = mapOf("script" to "RETURN \$n", "ns" to "shop", "db" to "main", "params" to mapOf("n" to "'; DELETE item"))
        assertEquals<Map<String, Any?>>(wanted, run.body)
        one.answer(run.id, null, 1)
        running.await()
        val getting = async { db.cache("sessions").get("k") }
        val get = one.wants("KV")
        assertEquals<Map<String, Any?>>(mapOf("op" to "get", "ns" to "shop", "db" to "main", "space" to "sessions", "key" to "k"), get.body)
        one.say("VALUE", get.id, null)
        getting.await()
        for (wrong in listOf("", "1a", "a b", "a`", "x".repeat(65))) assertFailsWith<ValueException> { db.topic(wrong) }
        ends(client, one)
    }

    @Test
    fun `C34 what has no place in pages is refused`() {
        val pages = Pages("SELECT id, `limit` FROM item WHERE a > 1 -- no LIMIT", mapOf("n" to 1), 5)
        val (text, params) = pages.script(RecordId("item", 7))
        assertEquals("SELECT id, `limit` FROM item \n WHERE id > \$storeclient_after AND ( a > 1 -- no LIMIT\n) ORDER BY id LIMIT \$storeclient_rows", text)
        assertEquals<Map<String, Any?>>(mapOf("n" to 1, "storeclient_rows" to 5, "storeclient_after" to RecordId("item", 7)), params)
        val wrong =
            listOf("VALUE a FROM t", "DISTINCT a FROM t", "a FROM ONLY t") +
                listOf("SPLIT a", "GROUP ALL", "ORDER BY a", "LIMIT 3", "START 3", "FETCH a", "TIMEOUT 1s").map { "a FROM t $it" } + "a FROM t; RETURN 1"
        for (each in wrong) assertFailsWith<ValueException>(each) { Pages("SELECT $each", emptyMap(), 5) }
        assertFailsWith<ValueException> { Pages("DELETE t", emptyMap(), 5) }
        assertFailsWith<ValueException> { Pages("SELECT * FROM t", mapOf("storeclient_rows" to 1), 5) }
        Pages("SELECT limit FROM t WHERE (SELECT 1 LIMIT 1) AND start = 'ORDER'", emptyMap(), 5)
    }

    @Test
    fun `C35 keys and leases`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val cache = client.database("a", "b").cache("c")
        fails<ValueException> { cache.set("k", null, ttl = Duration.ZERO) }
        val setting = async { cache.set("k", null) }
        var one = node.greet()
        suspend fun asks(vararg want: Pair<String, Any?>): Long {
            val found = one.wants("KV")
            for ((name, item) in want) assertTrue(name in found.body && found.body[name] == item, "$name of ${found.body}")
            return found.id
        }
        one.say("VALUE", asks("op" to "set", "value" to null), mapOf("written" to true))
        setting.await()
        val making = async { cache.getOrSet("k", 1.minutes) { "made" } }
        one.say("VALUE", asks("op" to "get"), null)
        val ifAbsent = arrayOf("op" to "set", "value" to "made", "if" to "absent", "expire" to JavaDuration.ofMinutes(1))
        one.say("VALUE", asks(*ifAbsent), mapOf("written" to false))
        one.say("VALUE", asks("op" to "get"), null) // it is gone by then
        one.say("VALUE", asks(*ifAbsent), mapOf("written" to false))
        one.say("VALUE", asks("op" to "get"), mapOf("value" to "theirs", "ttl" to null))
        assertEquals("theirs", making.await())

        val locking = async { cache.lock("k", 3.milliseconds, renew = true) }
        val lock = one.wants("KV")
        assertTrue(Regex("[0-9a-f]{32}").matches(lock.body["holder"] as String))
        assertFalse("fence" in lock.body)
        val held = mapOf("held" to true, "fence" to 9, "until" to AT)
        one.say("VALUE", lock.id, held)
        val lease = assertNotNull(locking.await())
        val extends = arrayOf("op" to "lock", "holder" to lock.body["holder"], "fence" to 9L, "expire" to JavaDuration.ofMillis(3))
        one.say("VALUE", asks(*extends), held)
        asks(*extends)
        one.cut() // it goes on through an outage
        one = node.greet()
        one.say("VALUE", asks(*extends), mapOf("held" to false, "fence" to null, "until" to null))
        lease.lost.await()
        assertFalse(lease.extend()) // neither asks the node
        assertFalse(lease.release())
        ends(client, one)
    }

    @Test
    fun `C36 a reader that follows outlives an outage`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        fun Spoken.says(id: Long, position: Int) =
            answer(id, listOf(mapOf("position" to position, "at" to AT, "headers" to emptyMap<String, String>(), "value" to 1, "bytes" to 9)), 1)
        client.database("a", "b").topic("jobs").messages(follow = true).test(timeout = PATIENCE) {
            val one = node.greet()
            one.refuse(one.wants("RUN").id, "Busy", retry = true) // before the first answer: it says that it passes
            val run = one.wants("RUN")
            assertEquals<Any?>(mapOf("after" to 0L, "limit" to 1000L, "wait" to JavaDuration.ofMinutes(1)), run.body["params"])
            one.says(run.id, 1)
            assertEquals(1, awaitItem().position)
            one.refuse(one.wants("RUN").id, "NotWritable")
            one.wants("RUN")
            one.cut()
            val two = node.greet()
            val again = two.wants("RUN")
            assertEquals(1L, (again.body["params"] as Map<*, *>)["after"])
            two.says(again.id, 2)
            assertEquals(2, awaitItem().position)
            two.refuse(two.wants("RUN").id, "Unknown")
            assertTrue(awaitError().isRefused(Code.UNKNOWN))
            ends(client, two)
        }
    }

    private fun delivered(first: Int, count: Int): Map<String, Any?> =
        mapOf(
            "messages" to
                (first until first + count).map {
                    mapOf(
                        "position" to it, "at" to AT, "headers" to emptyMap<String, String>(), "value" to it, "bytes" to 9,
                        "receipt" to "r$it", "attempt" to 1, "deadline" to AT, "member" to null,
                    )
                },
        )

    private fun settled(what: String, count: Int, vararg stale: String): Map<String, Any?> =
        mapOf(what to count, "stale" to stale.size, "stale_receipts" to stale.toList())

    @Test
    fun `C38 C39 C41 a consumer takes ahead and acknowledges together`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val consumer = client.database("a", "b").topic("jobs").group("workers").consumer(prefetch = 4)
        val first = async { consumer.next() }
        var one = node.greet()
        suspend fun takes(count: Long): Long {
            val found = one.wants("TOPIC")
            assertEquals(listOf<Any?>("take", count, JavaDuration.ofMinutes(1)), listOf("op", "count", "wait").map { found.body[it] })
            return found.id
        }
        suspend fun acks(vararg receipts: String): Long {
            val found = one.wants("TOPIC")
            assertEquals(listOf<Any?>("ack", receipts.toList()), listOf("op", "receipts").map { found.body[it] })
            return found.id
        }
        suspend fun next(): Delivery = assertNotNull(consumer.next())
        one.say("VALUE", takes(4), delivered(1, 4))
        val r1 = assertNotNull(first.await())
        val r2 = next()
        var take = takes(2) // half of them are left
        val alone = async { r1.ack() }
        val ack = acks("r1")
        val r3 = next()
        val together = listOf(r2, r2, r3).map { async(start = CoroutineStart.UNDISPATCHED) { it.ack() } } // while one is under way
        one.say("VALUE", ack, settled("acked", 1))
        assertTrue(alone.await())
        one.say("VALUE", acks("r2", "r2", "r3"), settled("acked", 1, "r2", "r3"))
        assertEquals(listOf(true, false, false), together.awaitAll()) // of a receipt twice the first counts
        assertEquals(2, consumer.stale)
        val r4 = next()
        val broken = failing<OutcomeUnknownException> { r4.ack() } // a break under it: a stale one may be its own
        acks("r4")
        one.cut()
        one = node.greet()
        val left = hashSetOf("take", "ack") // in no order
        while (left.isNotEmpty()) {
            val found = one.wants("TOPIC")
            assertTrue(left.remove(found.body["op"]))
            if (found.body["op"] == "take") one.say("VALUE", found.id, delivered(5, 3)) else one.say("VALUE", found.id, settled("acked", 0, "r4"))
        }
        broken.await()
        next()
        take = takes(2)
        val stopped = async { consumer.stop() }
        assertEquals(take, one.wants("CANCEL").id)
        one.say("VALUE", take, delivered(8, 1)) // it was quick enough
        val back = one.wants("TOPIC")
        assertEquals(listOf<Any?>("nack", listOf("r6", "r7", "r8"), JavaDuration.ZERO), listOf("op", "receipts", "delay").map { back.body[it] })
        one.say("VALUE", back.id, settled("nacked", 3))
        stopped.await()
        assertNull(consumer.next())
        ends(client, one)
    }

    @Test
    fun `C40 done is one transaction`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val taking = async { client.database("a", "b").topic("jobs").group("workers").take() }
        val first = node.greet()
        first.say("VALUE", first.wants("TOPIC").id, delivered(1, 1))
        val message = taking.await().single()
        val done = async { message.done("CREATE a;\nCREATE b", mapOf("n" to 1)) }
        val before =
            "BEGIN; LET \$storeclient_receipt_ack = ACK `jobs` AS `workers` RECEIPTS [\$storeclient_receipt]; " +
                "IF \$storeclient_receipt_ack.stale > 0 { THROW 'storeclient: the receipt is stale' }; "
        first.wants("RUN")
        first.cut() // twice does no harm
        val one = node.greet()
        val run = one.wants("RUN")
        assertEquals("${before}CREATE a;\nCREATE b\n;COMMIT", run.body["script"])
        assertEquals<Any?>(mapOf("n" to 1L, "storeclient_receipt" to "r1"), run.body["params"])
        one.say("ANSWER", run.id, mapOf("results" to listOf("none", "none", "none", "rows", "none").map { result(it) }, "seq" to 1))
        assertEquals(1, done.await()?.results?.size)
        fails<ValueException> { message.done("CREATE a", mapOf("storeclient_receipt" to "x")) }
        val stale = async { message.done("CREATE a") }
        one.refuse(one.wants("RUN").id, "Thrown", mapOf("value" to "storeclient: the receipt is stale"))
        assertNull(stale.await())
        val wrong = failing<RefusedException> { message.done("CREAT a") }
        val error =
            mapOf(
                "code" to "BadRequest", "message" to "no", "status" to 400, "retry" to false, "detail" to emptyMap<String, Any>(),
                "statement" to 4, "line" to 1, "column" to before.length + 3,
            )
        one.say("ERROR", one.wants("RUN").id, mapOf("error" to error, "results" to emptyList<Any>()))
        assertEquals(listOf<Any?>(1, 1, 3), wrong.await().let { listOf(it.statement, it.line, it.column) })
        ends(client, one)
    }

    @Test
    fun `C41 a consumer extends what it holds`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val consumer = client.database("a", "b").topic("jobs").group("workers").consumer(prefetch = 2, extend = true)
        val first = async { consumer.next() }
        val one = node.greet()
        repeat(2) {
            val asked = one.next() // TAKE and INFO, in no order
            if (asked.kind == "RUN") {
                assertEquals("INFO FOR GROUP `workers` ON `jobs`", asked.body["script"])
                one.answer(asked.id, mapOf("deadline" to 3.milliseconds), 1)
            } else {
                one.say("VALUE", asked.id, delivered(1, 2))
            }
        }
        val message = assertNotNull(first.await())
        var seen = 0
        while (seen < 2) {
            val found = one.wants("TOPIC") // of the one that was given out, and the one that was not
            if (found.body["op"] == "take") continue
            assertEquals(listOf<Any?>("extend", JavaDuration.ofMillis(3)), listOf("op", "by").map { found.body[it] })
            val receipts = (found.body["receipts"] as List<*>).map { it as String }
            if (receipts.size == 2) seen++
            one.say("VALUE", found.id, settled("extended", 0, *(if (seen == 2) receipts.toTypedArray() else emptyArray())))
        }
        val serving = launch { one.serve(null) }
        until { consumer.heldCount == 0 } // they are forgotten
        assertEquals("r1", message.receipt)
        consumer.stop()
        client.close()
        serving.join()
    }

    private fun opened(seq: Int, start: Int): Map<String, Any?> =
        mapOf("type" to "open", "seq" to seq, "start" to start, "store" to "s", "epoch" to 2, "start_epoch" to 1)

    private fun part(seq: Int, number: Int, of: Int, name: String): Map<String, Any?> =
        mapOf(
            "type" to "commit", "seq" to seq, "epoch" to 1, "at" to AT, "by" to "ana", "reason" to null, "part" to number, "of" to of,
            "changes" to listOf(mapOf("action" to "update", "id" to RecordId("item", name), "value" to mapOf("n" to name))),
        )

    @Test
    fun `C42 C43 C44 a feed comes back where it was`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val watch = client.database("shop", "main").watch("item", where = "a > 1")
        suspend fun Spoken.opens(start: Int): Heard = wants("WATCH").also { say("CHANGE", it.id, opened(20, start)) }
        val commits = BlockingIterator(watch.commits(), client.nodes) // it asks for the next one by one
        val next = async(kotlinx.coroutines.Dispatchers.IO) { commits.next() }
        val one = node.greet()
        val asked = one.opens(7)
        assertEquals(listOf<Any?>("a > 1", null), listOf("where", "from").map { asked.body[it] })
        one.say("CHANGE", asked.id, part(8, 1, 2, "a"))
        one.say("CHANGE", asked.id, part(8, 2, 2, "b"))
        val commit = next.await()
        assertEquals(listOf<Any?>(mapOf("n" to "a"), mapOf("n" to "b")), commit.changes.map { it.value })
        assertEquals(listOf<Any?>("ana", Position(8, "s", 1)), listOf(commit.by, commit.position))
        assertEquals(7, watch.position?.seq) // the next was not asked for
        val ending = failing<RefusedException> { kotlinx.coroutines.withContext(kotlinx.coroutines.Dispatchers.IO) { commits.next() } }
        one.say("CHANGE", asked.id, part(9, 1, 2, "c")) // the other part never comes
        one.socket.close()
        val two = node.greet()
        val again = two.opens(8)
        assertEquals(listOf<Any?>(8L, "s", 1L), listOf("from", "store", "epoch").map { again.body[it] })
        two.say("CHANGE", again.id, mapOf("type" to "beat", "seq" to 30, "epoch" to 2))
        two.refuse(again.id, "TooSlow")
        val third = two.opens(30)
        assertEquals(listOf<Any?>(30L, 2L), listOf("from", "epoch").map { third.body[it] })
        two.refuse(third.id, "LogPruned")
        val error = ending.await()
        assertEquals(Code.LOG_PRUNED, error.code)
        assertTrue("read the table again" in error.text)
        ends(client, two)
    }

    @Test
    fun `C44 parts that do not fit each other`() {
        val parts = listOf(part(8, 1, 2, "a"), part(8, 2, 3, "b")).map { Decoder().run { packValue(it).let { at -> read(at, 0, at.size) } }.asBody() }
        assertFailsWith<ProtocolBrokenException> { readCommit(parts, Position(8)) }
    }

    @Test
    fun `C45 a feed that nobody reads is ended and opened again`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val watch = client.database("shop", "main").watch("item")
        val ended = List(2) { kotlinx.coroutines.CompletableDeferred<Unit>() }
        val peer =
            async {
                val one = node.greet()
                for ((round, from) in listOf(0, 6).withIndex()) {
                    val asked = one.wants("WATCH")
                    assertEquals(from.toLong(), asked.body["from"] ?: 0L)
                    one.say("CHANGE", asked.id, opened(99, from))
                    for (seq in from + 1..from + 6) {
                        val changes = listOf(mapOf("action" to "create", "id" to RecordId("item", seq), "value" to mapOf("v" to "x".repeat(1 shl 20))))
                        one.say("CHANGE", asked.id, mapOf("type" to "commit", "seq" to seq, "epoch" to 1, "at" to AT, "changes" to changes))
                    }
                    assertEquals(asked.id, one.wants("UNWATCH").id)
                    one.say("ANSWER", asked.id, mapOf("seq" to from + 6, "epoch" to 1))
                    ended[round].complete(Unit)
                }
                one
            }
        var seq = 0L
        watch.commits().collect { commit ->
            assertEquals(++seq, commit.seq)
            // Nothing is asked for until the feed has been ended: once in the first six, once in the others.
            if (seq == 1L) ended[0].await()
            if (seq == 7L) ended[1].await()
            if (seq == 12L) watch.stop()
        }
        assertEquals(12, watch.position?.seq)
        ends(client, peer.await())
    }

    @Test
    fun `C46 a mirror is read again where the log has no more`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val copies = ConcurrentLinkedQueue<Pair<Long, Boolean>>()
        val opening = async { client.database("a", "b").mirror("item", onCopy = { copies.add(it.seq to (it.why?.isRefused(Code.LOG_PRUNED) == true)) }) }
        val one = node.greet()
        suspend fun reads(seq: Int, name: String) {
            repeat(3) {
                val found = one.wants("RUN") // a moment, a page of it, and its end
                val rows = if (found.body["script"] == "") emptyList() else listOf(mapOf("id" to RecordId("item", 1), "name" to name))
                val moment = if (found.body["moment"] == "new") "m" else null
                one.say("ANSWER", found.id, mapOf("results" to listOf(result("rows", rows)), "seq" to seq, "store" to "s", "epoch" to 1, "moment" to moment))
            }
        }
        reads(4, "lamp")
        val mirror = opening.await()
        var watch = one.wants("WATCH")
        assertEquals(listOf<Any?>(4L, "s", 1L), listOf("from", "store", "epoch").map { watch.body[it] })
        one.refuse(watch.id, "LogPruned")
        assertEquals("lamp", mirror[RecordId("item", 1)]?.get("name")) // meanwhile
        reads(9, "desk")
        watch = one.wants("WATCH")
        assertEquals(listOf<Any?>("desk"), mirror.rows().map { it["name"] })
        assertEquals(listOf(4L to false, 9L to true), copies.toList())
        one.say("CHANGE", watch.id, opened(9, 9))
        val changes = listOf(mapOf("action" to "delete", "id" to RecordId("item", 1), "value" to null))
        one.say("CHANGE", watch.id, mapOf("type" to "commit", "seq" to 10, "epoch" to 1, "at" to AT, "changes" to changes))
        mirror.reached(10)
        assertEquals(0, mirror.size)
        val serving = launch { one.serve(null) }
        mirror.close()
        assertIs<ClosedException>(mirror.error)
        client.close()
        serving.join()
    }

    @Test
    fun `C48 a backup is whole or no file`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val connecting = async { client.connect() }
        val first = node.greet()
        connecting.await()
        val folder = createTempDirectory("storeclient")
        val path = folder.resolve("monday")
        val snapshot = mapOf("form" to "snapshot", "records" to 3, "version" to "0")
        val whole = mapOf("results" to listOf(result("value", snapshot)), "seq" to 1)
        fun Spoken.part(id: Long, n: Int, done: Int, total: Int) =
            say("PART", id, mapOf("n" to n, "bytes" to "12345".toByteArray(), "done" to done, "total" to total))
        val broken =
            listOf<Spoken.(Long) -> Unit>(
                { id ->
                    part(id, 1, 5, 15)
                    part(id, 3, 15, 15) // a part is missing
                    say("ANSWER", id, whole)
                },
                { id ->
                    part(id, 1, 5, 10) // the last part is missing
                    say("ANSWER", id, whole)
                },
                { id ->
                    part(id, 1, 5, 10)
                    refuse(id, "Busy")
                },
                { id ->
                    part(id, 1, 5, 10)
                    socket.close()
                },
            )
        for (says in broken) {
            val taking = failing<StoreException> { client.backupFile(path) }
            val own = node.greet() // a connection of its own
            val run = own.wants("RUN")
            assertEquals(listOf<Any?>("BACKUP", true), listOf("script", "stream").map { run.body[it] })
            own.says(run.id)
            taking.await()
            assertEquals(emptyList(), folder.listDirectoryEntries())
        }
        val left = launch { client.backupFile(path) }
        node.greet().wants("RUN")
        left.cancelAndJoin()
        assertEquals(emptyList(), folder.listDirectoryEntries())
        val taking = async { client.backupFile(path, onProgress = { _, total -> assertEquals(100, total) }) }
        val own = node.greet()
        val run = own.wants("RUN")
        for (n in 1..20) own.part(run.id, n, 5 * n, 100)
        own.say("ANSWER", run.id, whole)
        assertEquals(BackupFile(100, "snapshot", 3, "0"), taking.await())
        assertEquals(listOf("monday"), folder.listDirectoryEntries().map { it.name })
        assertEquals("12345".repeat(20), Files.readString(path))
        fails<FileAlreadyExistsException> { client.backupFile(path) }
        ends(client, first)
    }

    @Test
    fun `C50 the node's UnknownOutcome is one too`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val asked = failing<OutcomeUnknownException> { client.run("CREATE a") }
        val one = node.greet()
        one.refuse(one.wants("RUN").id, "UnknownOutcome")
        val error = asked.await()
        assertTrue(error.isRefused(Code.UNKNOWN_OUTCOME))
        assertEquals("no", (error as Refusal).text)
        ends(client, one)
    }

    @Test
    fun `C14 a cancelled collector takes its consumer with it`() = test {
        val node = Peer()
        val client = clientOf(node.address)
        val collecting = launch { client.database("a", "b").topic("jobs").group("workers").messages().collect { fail("there is none") } }
        val one = node.greet()
        val take = one.wants("TOPIC")
        collecting.cancel(CancellationException("enough"))
        assertEquals(take.id, one.wants("CANCEL").id)
        one.refuse(take.id, "Cancelled")
        collecting.join()
        ends(client, one)
    }
}

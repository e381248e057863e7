package storeclient

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.map
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import kotlinx.serialization.Contextual
import kotlinx.serialization.Serializable
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable
import storeclient.serialization.encodeValue
import storeclient.serialization.queryAs
import storeclient.serialization.rowsAs
import java.io.ByteArrayOutputStream
import java.math.BigDecimal
import java.nio.file.FileAlreadyExistsException
import java.time.Instant
import java.util.UUID
import kotlin.io.path.createTempDirectory
import kotlin.io.path.fileSize
import kotlin.io.path.listDirectoryEntries
import kotlin.io.path.name
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlin.test.assertIs
import kotlin.test.assertNotNull
import kotlin.test.assertNull
import kotlin.test.assertTrue
import kotlin.time.Duration
import kotlin.time.Duration.Companion.hours
import kotlin.time.Duration.Companion.minutes
import java.time.Duration as JavaDuration

private val ADDRESS: String = System.getenv("STORENODE_ADDRESS") ?: ""
private val USER: String = System.getenv("STORENODE_USER") ?: "root"
private val PASSWORD: String = System.getenv("STORENODE_PASSWORD") ?: ""

private fun open(): Client = Client(ADDRESS, user = USER, password = PASSWORD, connectTimeout = PATIENCE)

/** Runs a test with a client and a namespace of its own. */
private fun onNode(ns: String, body: suspend kotlinx.coroutines.CoroutineScope.(Client, Database) -> Unit): Unit =
    test(PATIENCE * 5) {
        open().use { client ->
            client.run("DEFINE NAMESPACE IF NOT EXISTS $ns; DEFINE DATABASE IF NOT EXISTS $ns.main")
            body(client, client.database(ns, "main"))
        }
    }

/** The whole surface against the node that STORENODE_ADDRESS names. */
@EnabledIfEnvironmentVariable(named = "STORENODE_ADDRESS", matches = ".+")
class NodeTest {
    @Test
    fun values() = onNode("kotlin_values") { _, db ->
        val every =
            mapOf(
                "null" to null, "bool" to true, "int" to Long.MAX_VALUE, "least" to Long.MIN_VALUE, "small" to 7L, "float" to 1.0, "tenth" to 0.1,
                "decimal" to BigDecimal("12.30"), "string" to "naïve ☃ 'quoted'", "datetime" to Instant.parse("2026-01-02T03:04:05.123456Z"),
                "before" to Instant.parse("1931-01-02T03:04:05.000007Z"), "duration" to JavaDuration.ofDays(-3),
                "uuid" to UUID.fromString("018f0000-0000-0000-0000-000000000000"), "record" to RecordId("person", listOf("a", 1)),
                "array" to listOf(1L, listOf(2.5, listOf(BigDecimal("1"))), "x"), "object" to mapOf("b c" to mapOf("d" to emptyList<Any>())),
            )
        db.run("DEFINE TABLE item; CREATE item:1 CONTENT \$v", mapOf("v" to mapOf("v" to every)))
        assertEquals<Any?>(listOf(every), db.query("SELECT VALUE v FROM item"))
        assertEquals(None, db.query("RETURN \$v", mapOf("v" to None)))
        assertContentEquals(byteArrayOf(0, -1), db.query("RETURN \$v", mapOf("v" to byteArrayOf(0, -1))) as ByteArray)
    }

    @Serializable
    data class Chair(val id: @Contextual RecordId, val name: String)

    @Test
    fun `C52 scripts and transactions`() = onNode("kotlin_scripts") { client, db ->
        db.run("DEFINE TABLE item")
        val refusal = refused(Code.ALREADY_EXISTS) { db.run("CREATE item:1 SET a = 1; CREATE item:1 SET a = 2; RETURN 3") }
        assertEquals(listOf<Any?>(2, true, 1), listOf(refusal.statement, refusal.committed > 0, refusal.results.size))
        val transaction = db.transaction()
        for (n in 0..2) transaction.add("CREATE item CONTENT { n: \$n, was: '\$n' } -- \$n", mapOf("n" to n))
        val answer = transaction.run()
        assertEquals(3, answer.results.size)
        assertEquals<Any?>(listOf(0L, 1L, 2L), db.query("SELECT VALUE n FROM item WHERE n >= 0 ORDER BY n"))
        refused(Code.ALREADY_EXISTS) { db.transaction().add("CREATE item:7").add("CREATE item:1").run() }
        assertEquals<Any?>(emptyList<Any>(), db.query("SELECT * FROM item:7"))
        assertFailsWith<ValueException> { db.transaction().add("COMMIT; CREATE item:8") }
        db.run("DELETE item")
        db.run("INSERT INTO item \$rows", mapOf("rows" to List(25) { mapOf("id" to it, "name" to "chair $it") }))
        assertEquals(Chair(RecordId("item", 3), "chair 3"), db.queryAs<Chair>("SELECT id, name FROM ONLY item:3"))
        db.run("UPDATE item:3 MERGE \$chair", mapOf("chair" to mapOf("more" to encodeValue(Chair(RecordId("item", 3), "x")))))
        val read = ArrayList<String>()
        val moment = db.moment()
        moment.rowsAs<Chair>("SELECT id, name FROM item WHERE name != \$not", mapOf("not" to "chair 3"), page = 7).collect {
            if (read.isEmpty()) db.run("DELETE item WHERE id > item:10")
            read.add(it.name)
        }
        assertEquals(listOf<Any?>(24, "chair 4", "chair 24"), listOf(read.size, read[3], read[23]))
        moment.close()
        refused(Code.UNKNOWN) { moment.run("RETURN 1") }
        assertTrue("`id` among its fields" in fails<ValueException> { db.rows("SELECT name FROM item").first() }.message!!)
        db.run("CREATE item:99; SELECT * FROM item", timeout = 1.minutes, reason = "why", after = answer.seq, current = true, record = true)
        assertEquals(12, db.run("SELECT * FROM item").rows.size)
        client.ping()
        val welcome = client.connect()
        assertEquals(listOf<Any?>(10, true, USER), listOf(welcome.minor, welcome.writable, welcome.user?.get("name")))
        refused(Code.UNKNOWN) { db.topic("none").read(wait = 1.minutes) }
        assertFailsWith<ValueException> { client.database("not a name", "main") }
    }

    @Test
    fun cache() = onNode("kotlin_cache") { _, db ->
        db.run("DEFINE SPACE sessions")
        val cache = db.cache("sessions")
        assertNull(cache.get("a"))
        cache.set("a", mapOf("user" to 7), ttl = 1.hours)
        assertEquals<Any?>(mapOf("user" to 7L), cache.get("a"))
        assertTrue(assertNotNull(cache.ttl("a")) > 50.minutes)
        cache.set("a", null, keepTtl = true)
        assertNull(assertNotNull(cache.entry("a")).value)
        assertTrue(cache.persist("a"))
        assertNull(assertNotNull(cache.entry("a")).ttl)
        assertNull(cache.entry("none"))
        assertEquals(listOf(true, false), listOf(cache.expire("a", 1.minutes), cache.expire("none", 1.minutes)))
        assertEquals(listOf(false, true), listOf(cache.setIfAbsent("a", 1), cache.setIfPresent("a", 1)))
        assertFalse(cache.compareAndSet("a", 1.0, 2)) // 1 is not 1.0
        assertTrue(cache.compareAndSet("a", 1, 2))
        assertTrue(cache.compareAndSet("b", None, "new"))
        assertEquals(listOf(1L, 42L, 1L shl 60), listOf(cache.incr("n"), cache.incr("n", 41), cache.incr("big", 1L shl 60)))
        assertEquals(listOf(true, false), listOf(cache.delete("a"), cache.delete("a")))
        val names = List(1_203) { "key:${it.toString().padStart(5, '0')}" }
        coroutineScope { names.forEachIndexed { n, name -> launch { cache.set(name, n) } } }
        assertEquals(names.subList(2, 4), cache.keys("key:", after = "key:00001", limit = 2))
        assertEquals(names, cache.allKeys("key:").toList())
        var loads = 0
        assertEquals(1, List(5) { async { cache.getOrSet("page", 1.minutes) { ++loads } } }.awaitAll().toSet().size)
        fails<IllegalStateException> { cache.getOrSet("failing") { error("no") } }

        val first = assertNotNull(cache.lock("job", 1.minutes, holder = "one"))
        first.use { lease ->
            assertNull(cache.lock("job", 1.minutes))
            assertTrue(lease.extend(2.minutes))
            assertTrue(lease.until > Instant.now())
            assertEquals(listOf(true, true, false, false), listOf(lease.release(), lease.isLost, lease.release(), lease.extend()))
        }
        assertNotNull(cache.lock("job", 1.minutes, holder = "one", renew = true)).use { assertTrue(it.fence > first.fence) }
    }

    @Test
    fun topics() = onNode("kotlin_topics") { _, db ->
        db.run("DEFINE TOPIC jobs DEDUP 10m; DEFINE GROUP workers ON jobs DEADLINE 30s; DEFINE TABLE paid")
        val jobs = db.topic("jobs")
        assertEquals(Published(1, false), jobs.publish(mapOf("order" to 81), key = "ana", id = "order-81", headers = mapOf("a" to "b")))
        assertEquals(Published(1, true), jobs.publish("another", id = "order-81"))
        assertEquals(2L..4L, jobs.publishMany(listOf(1, 2, 3)))
        refused(Code.ASSERT_FAILED) { jobs.publish(1, expect = 9) }
        jobs.publish(5, delay = 1.hours)
        val page = jobs.read()
        assertEquals(listOf<Any?>(5, "ana", "order-81", mapOf("a" to "b")), page[0].let { listOf(page.size, it.key, it.id, it.headers) })
        assertNotNull(page[4].due)

        val reader = jobs.reader("audit")
        reader.define()
        assertEquals(listOf(1L, 2L, 3L), reader.messages().take(3).map { it.position }.toList())
        assertEquals(3, reader.read().first().position)
        reader.move(Place.Since(page[2].at))
        reader.move(Place.At(0))
        assertEquals(5, reader.messages().toList().size)
        jobs.reader("late").define(Place.End)
        reader.drop()

        val workers = jobs.group("workers")
        val (one, two) = workers.take(count = 2, member = "one")
        assertEquals(listOf<Any?>(1, "one"), listOf(one.attempt, one.member))
        val done = one.done("CREATE paid SET job = \$job;\nCREATE paid SET job = 0", mapOf("job" to one.value))
        assertEquals(2, done?.results?.size)
        assertNull(one.done("CREATE paid SET job = 1"))
        val wrong = refused(Code.ALREADY_EXISTS) { two.done("CREATE paid:1;\n  CREATE paid:1") }
        assertEquals(listOf<Any?>(2, 2, 3), listOf(wrong.statement, wrong.line, wrong.column))
        assertEquals(1, refused(Code.UNEXPECTED_TOKEN) { two.done("CREAT paid:1") }.column)
        assertEquals(listOf(true, true, false), listOf(two.extend(1.minutes), two.nack(delay = Duration.ZERO, error = "later"), two.ack()))
        assertEquals(Settled(0, listOf(one.receipt, two.receipt)), workers.ack(listOf(one.receipt, two.receipt)))
        assertEquals(2L, db.query("SELECT VALUE count() FROM ONLY paid GROUP ALL"))

        repeat(7) { jobs.publishMany(List(100) { null }) }
        val acks =
            coroutineScope {
                workers.messages(prefetch = 200, extend = true).take(700).map { async { it.ack() } }.toList().awaitAll()
            }
        assertTrue(acks.all { it })
        val rest = workers.take(count = 1000)
        assertEquals(3, rest.size)
        for (left in rest) assertTrue(left.giveUp("no use"))
        assertEquals(listOf<Any?>("workers", "jobs"), listOf(workers.info()["name"], jobs.info()["name"]))
    }

    @Test
    fun `consumers end with their client`() = onNode("kotlin_consumers") { client, db ->
        db.run("DEFINE TOPIC jobs; DEFINE GROUP workers ON jobs DEADLINE 30s")
        val workers = db.topic("jobs").group("workers")
        for (extend in listOf(false, true)) {
            val consumer = workers.consumer(extend = extend)
            val waiting = launch { consumer.next() }
            db.topic("jobs").publish(1) // the TAKE is at the node, or comes in time
            waiting.cancelAndJoin()
            consumer.stop()
        }
        val left = workers.consumer()
        while (true) {
            val found = assertNotNull(left.next())
            found.ack()
            if (found.position == 2L) break
        }
        val waiting = failing<ClosedException> { left.next() }
        client.close()
        waiting.await()
    }

    @Test
    fun `large requests and answers`() = onNode("kotlin_large") { client, db ->
        val text = "x".repeat(6 shl 20)
        client.connect()
        val conn = client.nodes.home?.conn
        repeat(4) {
            val asked = async { db.query("RETURN string::len(\$text)", mapOf("text" to text)) }
            kotlinx.coroutines.yield()
            asked.cancelAndJoin()
        }
        assertEquals(text, db.query("RETURN \$text", mapOf("text" to text)))
        refused(Code.ANSWER_TOO_LARGE) { db.run("RETURN [\$text, \$text, \$text]", mapOf("text" to text)) }
        fails<ValueException> { db.run("RETURN \$text", mapOf("text" to "x".repeat(16 shl 20))) }
        client.ping()
        assertEquals(conn, client.nodes.home?.conn)
    }

    @Test
    fun feeds() = onNode("kotlin_feeds") { _, db ->
        val before = db.run("DEFINE TABLE item; CREATE item:1 SET name = 'desk'").position
        db.run("BEGIN; UPDATE item:1 SET price = 90; CREATE item:2 SET name = 'shelf', price = 5; COMMIT")
        val watch = db.watch("item", from = before, before = true)
        val seen = watch.commits().first().changes.map { "${it.action} ${it.id} ${it.before?.get("name")}" }
        assertEquals(listOf("UPDATE item:1 desk", "CREATE item:2 null"), seen)
        assertEquals(before, watch.position)
        val again = db.watch("item", from = before, actions = setOf(Action.CREATE))
        again.commits().collect {
            assertEquals(1, it.changes.size)
            again.stop()
        }
        assertTrue(assertNotNull(again.position).seq > before.seq)
        refused(Code.DIVERGED) { db.watch("item", from = Position(1, "another")).changes().first() }

        val copies = ArrayList<Copied>()
        db.mirror("item", where = "price > 10", page = 1, onCopy = { copies.add(it) }).use { mirror ->
            assertEquals(listOf(1, 1), listOf(mirror.size, copies.single().rows))
            val answer = db.run("UPDATE item:2 SET price = 35; UPDATE item:1 SET price = 5")
            mirror.reached(answer.seq)
            assertEquals(listOf<Any?>("shelf", 1, answer.seq), listOf(mirror[RecordId("item", 2)]?.get("name"), mirror.rows().size, mirror.seq))
            mirror.changed(before.seq) // it has changed since then already
            val changed = failing<ClosedException> { mirror.changed(mirror.seq) }
            mirror.close()
            changed.await()
            assertIs<ClosedException>(mirror.error)
        }
    }

    @Test
    fun vaults() = onNode("kotlin_vaults") { client, db ->
        val seal = client.storeSeal
        val passphrase = "open sesame, please"
        try {
            seal.changePassphrase(null, passphrase)
        } catch (_: RefusedException) {
            seal.unseal(passphrase) // another client's tests have set it before
        }
        db.run("DEFINE VAULT payment VERSIONS 2")
        val vault = db.vault("payment")
        seal.seal()
        refused(Code.SEALED) { vault.write("k", 1) }
        refused(Code.WRONG_KEY) { seal.unseal("another") }
        assertTrue(seal.unseal(passphrase) > Instant.now())
        assertEquals(Written(true, 1), vault.write("stripe/live", "sk_1", reason = "new"))
        assertEquals(Written(false, 1), vault.write("stripe/live", "sk_2", ifAbsent = true))
        assertEquals(Written(true, 2), vault.write("stripe/live", "sk_2", expectVersion = 1))
        val found = vault.reveal("stripe/live", reason = "refunds")
        assertEquals(listOf<Any?>("stripe/live", "sk_2", 2L), listOf(found.id, found.value, found.version))
        assertEquals("sk_1", vault.reveal("stripe/live", version = 1).value)
        assertEquals(listOf("stripe/live"), vault.list("stripe/", limit = 10))
        assertEquals(1L, vault.info()["records"])
        assertEquals("list", vault.audit(1).single()["action"])
        assertTrue(vault.erase("stripe/live", reason = "done"))
        seal.seal()
        refused(Code.SEALED) { vault.list() }
    }

    @Test
    fun backups() = onNode("kotlin_backups") { client, db ->
        db.run("DEFINE TABLE item; CREATE item:1 SET text = 'a'")
        val folder = createTempDirectory("storeclient")
        val path = folder.resolve("monday.storesnap")
        var last = 0L
        val found = client.backupFile(path, onProgress = { done, _ -> last = done })
        assertEquals(listOf<Any?>(path.fileSize(), path.fileSize(), "snapshot", true), listOf(found.bytes, last, found.form, found.records > 0))
        fails<FileAlreadyExistsException> { client.backupFile(path) }
        assertEquals(1, client.backupFile(folder.resolve("other"), ns = db.ns, db = db.db, reason = "to see").records)
        refused(Code.UNKNOWN) { client.backupFile(folder.resolve("third"), ns = "nowhere") }
        assertEquals(setOf("monday.storesnap", "other"), folder.listDirectoryEntries().map { it.name }.toSet())
        val stream = ByteArrayOutputStream()
        assertEquals(client.backup(stream).bytes, stream.size().toLong())
    }

    @Test
    fun `a wrong password`() = test {
        Client(ADDRESS, user = USER, password = "wrong").use { client -> refused(Code.SIGN_IN_REFUSED) { client.connect() } }
    }

    @Test
    fun blocking() = onNode("kotlin_blocking") { client, database ->
        withContext(Dispatchers.IO) { useBlocking(client.blocking(), database) }
    }

    private fun useBlocking(client: BlockingClient, database: Database) {
        val db = client.database(database.ns, database.db)
        val began = db.run("DEFINE TABLE item; DEFINE SPACE pages; DEFINE TOPIC jobs; DEFINE GROUP workers ON jobs DEADLINE 30s")
        db.transaction().add("CREATE item:1 SET n = \$n", mapOf("n" to 1)).add("CREATE item:2 SET n = 2").run()
        assertEquals(listOf(1L, 2L), db.rows("SELECT * FROM item", page = 1).use { rows -> rows.asSequence().map { it["n"] as Long }.toList() })
        db.moment().use { assertEquals<Any?>(listOf(1L, 2L), it.query("SELECT VALUE n FROM item ORDER BY n")) }
        db.run("RETURN 1", emptyMap(), RunOptions().timeout(JavaDuration.ofMinutes(1)).reason("why").current().record())
        val pages = db.cache("pages")
        pages.set("a", 1, JavaDuration.ofHours(1))
        assertEquals(1L, pages.get("a"))
        assertEquals("made", pages.getOrSet("b", null) { "made" })
        assertEquals(listOf("a", "b"), pages.allKeys().use { it.asSequence().toList() })
        pages.lock("l", JavaDuration.ofMinutes(1)).orElseThrow().use { assertTrue(it.extend()) }
        val jobs = db.topic("jobs")
        jobs.publish(1, PublishOptions().key("k").headers(mapOf("a" to "b")))
        jobs.publishMany(listOf(2, 3))
        jobs.group("workers").consumer().use { consumer ->
            assertTrue(consumer.next().orElseThrow().ack())
            assertEquals(1, consumer.next().orElseThrow().done("CREATE item:3").orElseThrow().results.size)
        }
        assertEquals(3, jobs.messages().use { it.asSequence().count() })
        val watch = db.watch("item", began.position)
        watch.commits().use { commits ->
            assertEquals(2, commits.next().changes.size)
            assertEquals(began.seq, watch.position?.seq)
            assertEquals(1, commits.next().changes.size)
            assertTrue(assertNotNull(watch.position).seq > began.seq)
        }
        db.mirror("item").use { assertEquals(3, it.size) }
        assertFailsWith<RefusedException> { db.run("CREATE item:1") }
    }
}

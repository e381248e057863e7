// The testee of this client for the conformance suite: clients/conformance/README.md.

package storeclient.testee

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Job
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.count
import kotlinx.coroutines.flow.map
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.job
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.boolean
import kotlinx.serialization.json.double
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import kotlinx.serialization.json.long
import storeclient.*
import java.nio.file.FileAlreadyExistsException
import java.nio.file.Path
import java.time.Instant
import java.util.concurrent.ConcurrentLinkedQueue
import kotlin.concurrent.thread
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.minutes
import kotlin.time.Duration.Companion.seconds
import kotlin.time.toJavaDuration

/** The suite asked for something that this program does not know. */
private class Misuse(message: String) : RuntimeException(message)

/** The language cannot express it. */
private class Unsupported(message: String) : RuntimeException(message)

/** A loader failed, as the suite has asked for. */
private class LoaderFailed : RuntimeException("the loader failed")

/** One call of the suite, and its arguments. */
private class Call(private val fields: JsonObject) {
    fun given(name: String): JsonElement? = fields[name]?.takeIf { it != JsonNull }

    fun text(name: String): String? = given(name)?.jsonPrimitive?.content

    fun need(name: String): String = text(name) ?: throw Misuse("$name is missing")

    fun int(name: String): Int? = given(name)?.jsonPrimitive?.int

    fun long(name: String): Long? = given(name)?.jsonPrimitive?.long

    fun flag(name: String): Boolean = given(name)?.jsonPrimitive?.boolean ?: false

    fun time(name: String): Duration? = given(name)?.jsonPrimitive?.double?.milliseconds

    fun value(name: String): Any? = fields[name]?.let(::readTagged)

    fun strings(name: String): List<String> = given(name)?.jsonArray?.map { it.jsonPrimitive.content } ?: emptyList()

    @Suppress("UNCHECKED_CAST")
    val params: Map<String, Any?> get() = value("params") as Map<String, Any?>? ?: emptyMap()
    val headers: Map<String, String>? get() = given("headers")?.jsonObject?.mapValues { it.value.jsonPrimitive.content }
}

/** What goes on for ever, asked for one at a time. */
private class Iteration(val next: suspend () -> Any?, val stop: suspend () -> Unit, val watch: Watch? = null)

private class Testee(private val scope: CoroutineScope) {
    private val names = HashMap<String, Any>()
    private val events = HashMap<String, ConcurrentLinkedQueue<ConnectionEvent>>()
    private val copies = HashMap<String, ConcurrentLinkedQueue<Copied>>()
    private val deliveries = HashMap<String, Delivery>()
    private val lets = HashMap<String, CompletableDeferred<Unit>>()
    private val running = HashMap<Long, Job>()

    fun begin(line: String) {
        val found = Json.parseToJsonElement(line)
        for (one in found as? JsonArray ?: listOf(found)) begin(one.jsonObject)
    }

    private fun begin(fields: JsonObject) {
        val id = fields.getValue("id").jsonPrimitive.long
        val name = fields.getValue("call").jsonPrimitive.content
        scope.launch(start = CoroutineStart.UNDISPATCHED) {
            running[id] = currentCoroutineContext().job
            answer(id, name, Call(fields))
            running.remove(id)
        }
    }

    private suspend fun answer(id: Long, name: String, call: Call) {
        val (key, found) =
            try {
                "value" to writeTagged(make(name, call))
            } catch (error: Unsupported) {
                "skip" to JsonPrimitive(error.message)
            } catch (error: Exception) {
                "error" to errorOf(error)
            }
        println(JsonObject(mapOf("id" to JsonPrimitive(id), key to found)))
        System.out.flush()
    }

    // --- answers

    private fun positionOf(position: Position?): Any? = position?.let { mapOf("seq" to it.seq, "store" to it.store, "epoch" to it.epoch) }

    private fun resultOf(one: Result) =
        mapOf("value" to one.value, "kind" to one.kind, "rows" to one.rows, "took" to one.took, "changed" to one.changed)

    private fun answerOf(answer: Answer) =
        mapOf("results" to answer.results.map(::resultOf), "seq" to answer.seq, "store" to answer.store, "epoch" to answer.epoch)

    private fun messageOf(one: Message): Map<String, Any?> =
        mapOf(
            "position" to one.position, "at" to one.at, "key" to one.key, "id" to one.id, "headers" to one.headers, "value" to one.value,
            "bytes" to one.bytes,
        )

    private fun deliveryOf(one: Delivery): Map<String, Any?> {
        deliveries[one.receipt] = one
        return messageOf(one) + mapOf("receipt" to one.receipt, "attempt" to one.attempt, "deadline" to one.deadline, "member" to one.member)
    }

    private fun settledOf(one: Settled) = mapOf("done" to one.done, "stale" to one.stale.size, "stale_receipts" to one.stale)

    private fun commitOf(one: Commit) =
        mapOf(
            "seq" to one.seq, "at" to one.at, "by" to one.by, "reason" to one.reason, "position" to positionOf(one.position),
            "changes" to
                one.changes.map {
                    mapOf(
                        "action" to it.action.name.lowercase(), "id" to it.id, "value" to it.value, "before" to it.before,
                        "missing" to it.missing?.name?.lowercase(),
                    )
                },
        )

    private fun errorOf(error: Exception): JsonElement {
        val chain = generateSequence<Throwable>(error) { it.cause }.take(CHAIN).toList()
        val kind = kindOf(error)
        val found =
            mutableMapOf<String, JsonElement>(
                "kind" to JsonPrimitive(kind),
                "text" to JsonPrimitive(error.stackTraceToString()),
                "cause" to JsonPrimitive((chain.drop(1).firstOrNull { it is Refusal } as Refusal?)?.code),
            )
        if (kind == "Testee") System.err.println(error.stackTraceToString())
        if (error is ValueException) found["path"] = JsonPrimitive(error.path.ifEmpty { null })
        if (error is Refusal) {
            found +=
                mapOf(
                    "code" to JsonPrimitive(error.code), "message" to JsonPrimitive(error.text), "status" to JsonPrimitive(error.status),
                    "retry" to JsonPrimitive(error.retry), "detail" to writeTagged(error.detail), "request" to JsonPrimitive(error.request),
                    "statement" to JsonPrimitive(error.statement), "line" to JsonPrimitive(error.line), "column" to JsonPrimitive(error.column),
                    "results" to writeTagged(error.results.map(::resultOf)),
                )
        }
        return JsonObject(found)
    }

    private fun kindOf(error: Exception): String =
        when (error) {
            is CancellationException -> "Cancelled"
            is ClosedException -> "Closed"
            is OutcomeUnknownException -> "OutcomeUnknown"
            is RefusedException -> "Refused"
            is UnreachableException -> "Unreachable"
            is ProtocolBrokenException -> "ProtocolBroken"
            is LoaderFailed -> "Loader"
            is FileAlreadyExistsException -> "Exists"
            is IllegalArgumentException -> "Invalid"
            else -> "Testee"
        }

    // --- handles

    private inline fun <reified T : Any> named(call: Call): T = names[call.need("on")] as? T ?: throw Misuse("nothing is named ${call.need("on")}")

    private fun clientOf(call: Call): Client = named(call)

    private fun databaseOf(call: Call): Database = clientOf(call).database(call.need("ns"), call.need("db"))

    private fun cacheOf(call: Call): Cache = databaseOf(call).cache(call.need("space"))

    private fun topicOf(call: Call): Topic = databaseOf(call).topic(call.need("topic"))

    private fun readerOf(call: Call): Reader = topicOf(call).reader(call.need("reader"))

    private fun groupOf(call: Call): Group = topicOf(call).group(call.need("group"))

    private fun vaultOf(call: Call): Vault = databaseOf(call).vault(call.need("vault"))

    private fun sealOf(call: Call): Seal = if (call.text("vault") == null) clientOf(call).storeSeal else vaultOf(call)

    private fun deliveryOn(call: Call): Delivery = deliveries[call.need("receipt")] ?: throw Misuse("no delivery has that receipt")

    private fun letOf(name: String): CompletableDeferred<Unit> = lets.getOrPut(name) { CompletableDeferred() }

    private fun iterate(call: Call, flow: Flow<Map<String, Any?>>, watch: Watch? = null) {
        val pull = Pull(flow, clientOf(call).nodes)
        val stop: suspend () -> Unit = if (watch == null) pull::end else ({ watch.stop() })
        val next = suspend {
            try {
                pull.next()
            } catch (error: CancellationException) {
                pull.end()
                throw error
            }
        }
        names[call.need("as")] = Iteration(next, stop, watch)
    }

    // --- calls

    private suspend fun reset() {
        val own = currentCoroutineContext().job
        val others = running.values.filter { it !== own }
        others.forEach { it.cancel() }
        lets.values.forEach { it.complete(Unit) }
        for (one in names.values) if (one is Client) one.nodes.abandon()
        others.joinAll()
        for (kept in listOf(names, events, copies, deliveries, lets)) kept.clear()
    }

    private fun open(call: Call) {
        val told = ConcurrentLinkedQueue<ConnectionEvent>()
        val addresses = call.given("addresses").let { if (it is JsonArray) call.strings("addresses") else listOf(call.need("addresses")) }
        val times = Call(call.given("times")?.jsonObject ?: JsonObject(emptyMap()))
        val usual = Pulse()
        val pulse =
            Pulse(
                times.time("quiet") ?: usual.quiet,
                times.time("answer") ?: usual.answer,
                times.time("leaving") ?: usual.leaving,
                times.time("grace") ?: usual.grace,
            )
        names[call.need("as")] =
            Client(
                addresses, call.text("user"), call.text("password"), call.text("token"),
                call.given("tls")?.jsonObject?.let { Tls.trusting(Path.of(Call(it).need("ca"))) },
                call.time("timeout"), call.time("connect_timeout") ?: 10.seconds,
                if (call.text("reads") == "any") Reads.ANY else Reads.LEADER, told::add, null, pulse,
            )
        events[call.need("as")] = told
    }

    private suspend fun run(call: Call): Answer =
        named<Runner>(call).run(
            call.need("script"), call.params, call.time("timeout"), call.text("reason"), call.flag("repeatable"), call.flag("record"),
            call.long("after"), call.flag("current"), call.text("ns"), call.text("db"),
        )

    private suspend fun transaction(call: Call): Answer {
        val transaction = databaseOf(call).transaction()
        for (one in call.given("statements")!!.jsonArray.map { Call(it.jsonObject) }) transaction.add(one.need("script"), one.params)
        return transaction.run(call.time("timeout"), call.text("reason"), call.flag("repeatable"), call.flag("current"))
    }

    private suspend fun rows(call: Call): List<Row> {
        val on = named<Runner>(call)
        val runner = if (on is Client) databaseOf(call) else on
        return runner.rows(call.need("select"), call.params, call.int("page") ?: 1000).toList()
    }

    private suspend fun getOrSet(call: Call): Any {
        var loads = 0
        val load = Call(call.given("load")!!.jsonObject)
        val value =
            cacheOf(call).getOrSet(call.need("key"), call.time("ttl")) {
                loads++
                load.text("after")?.let { letOf(it).await() }
                if (load.flag("fail")) throw LoaderFailed()
                load.value("value")
            }
        return mapOf("value" to value, "loads" to loads)
    }

    private suspend fun publish(call: Call): Any {
        val found =
            topicOf(call).publish(
                call.value("value"), call.text("key"), call.text("message_id"), call.headers, call.time("delay"), call.value("at") as Instant?,
                call.long("expect"),
            )
        return mapOf("position" to found.position, "duplicate" to found.duplicate)
    }

    private suspend fun publishMany(call: Call): Any {
        val found = topicOf(call).publishMany(call.value("values") as List<*>, call.text("key"), call.headers, call.time("delay"), null, call.long("expect"))
        return mapOf("first" to found.first, "last" to found.last)
    }

    private fun placeOf(call: Call): Place? {
        val at = call.given("at") ?: return null
        if (at is JsonPrimitive) return if (at.content == "end") Place.End else Place.At(at.long)
        return when (val found = readTagged(at)) {
            is Instant -> Place.Since(found)
            else -> Place.At(found as Long)
        }
    }

    private suspend fun openMirror(call: Call) {
        val told = ConcurrentLinkedQueue<Copied>()
        names[call.need("as")] = databaseOf(call).mirror(call.need("table"), call.text("where"), call.int("page") ?: 1000) { told.add(it) }
        copies[call.need("as")] = told
    }

    private fun watch(call: Call) {
        val from =
            when (val given = call.given("from")) {
                null -> null
                is JsonPrimitive -> Position(given.long)
                else -> Call(given.jsonObject).run { Position(long("seq")!!, text("store"), long("epoch")) }
            }
        val actions = call.given("actions")?.let { call.strings("actions").map { Action.valueOf(it.uppercase()) }.toSet() }
        val made = databaseOf(call).watch(call.need("table"), from, call.text("where"), actions, call.flag("before"))
        iterate(call, made.commits().map(::commitOf), made)
    }

    private suspend fun backup(call: Call): Any {
        val progress = ArrayList<Long>()
        val found =
            clientOf(call).backupFile(Path.of(call.need("path")), call.text("ns"), call.text("db"), call.text("reason")) { done, _ -> progress.add(done) }
        return mapOf("bytes" to found.bytes, "form" to found.form, "records" to found.records, "version" to found.version, "progress" to progress)
    }

    private suspend fun load(call: Call): Any? {
        val count = call.int("count")!!
        val operation: (suspend (Int) -> Unit)? =
            when (call.need("operation")) {
                "get" -> cacheOf(call).let { cache -> { n -> cache.get("k${n % KEYS}") } }
                "set" -> cacheOf(call).let { cache -> { n -> cache.set("k${n % KEYS}", n) } }
                "publish" -> topicOf(call).let { topic -> { n -> topic.publish(n) } }
                else -> null
            }
        var next = 0
        if (operation == null) {
            next = databaseOf(call).rows("SELECT * FROM ${call.need("table")}").count()
        } else {
            coroutineScope { repeat(call.int("depth")!!) { launch { while (next < count) operation(next++) } } }
        }
        if (next != count) throw Misuse("there are $next rows")
        return null
    }

    @Suppress("CyclomaticComplexMethod", "LongMethod")
    private suspend fun make(name: String, call: Call): Any? =
        when (name) {
            "hello" -> mapOf("language" to "kotlin", "version" to VERSION, "minor" to MINOR)

            "reset" -> reset()

            "cancel" -> running[call.long("of")]?.cancel()

            "let" -> letOf(call.need("name")).complete(Unit).let { }

            "open" -> open(call)

            "connect" -> clientOf(call).connect().let { mapOf("node" to it.node, "version" to it.version, "minor" to it.minor, "user" to it.user?.get("name")) }

            "ping" -> clientOf(call).ping()

            "close" -> clientOf(call).close()

            "describe" -> clientOf(call).let { "$it ${it.blocking()}" }

            "events" -> events[call.need("on")]?.map {
                mapOf(
                    "change" to it.change.name.lowercase(), "address" to it.address,
                    "cause" to it.cause?.stackTraceToString(),
                )
            }

            "run" -> answerOf(run(call))

            "transaction" -> answerOf(transaction(call))

            "query" -> run(call).value

            "rows" -> rows(call)

            "moment.open" -> databaseOf(call).moment(call.time("keep") ?: 1.minutes).let {
                names[call.need("as")] = it
                positionOf(it.position)
            }

            "moment.close" -> named<Moment>(call).close()

            "cache.get" -> cacheOf(call).entry(call.need("key")).let { mapOf("found" to (it != null), "value" to it?.value) }

            "cache.set" -> cacheOf(call).set(call.need("key"), call.value("value"), call.time("ttl"), call.flag("keep_ttl"))

            "cache.set_if_absent" -> cacheOf(call).setIfAbsent(call.need("key"), call.value("value"), call.time("ttl"))

            "cache.set_if_present" -> cacheOf(call).setIfPresent(call.need("key"), call.value("value"), call.time("ttl"))

            "cache.compare_and_set" -> cacheOf(call).compareAndSet(call.need("key"), call.value("expect"), call.value("value"), call.time("ttl"))

            "cache.incr" -> cacheOf(call).incr(call.need("key"), call.value("by") as Long? ?: 1)

            "cache.delete" -> cacheOf(call).delete(call.need("key"))

            "cache.persist" -> cacheOf(call).persist(call.need("key"))

            "cache.expire" -> cacheOf(call).expire(call.need("key"), call.time("ttl")!!)

            "cache.ttl" -> cacheOf(call).entry(call.need("key"))?.let { it.ttl?.toJavaDuration() ?: "never" }

            "cache.keys" -> cacheOf(call).keys(call.text("prefix") ?: "", call.text("after") ?: "", call.int("limit") ?: KEYS)

            "cache.all_keys" -> cacheOf(call).allKeys(call.text("prefix") ?: "").toList()

            "cache.get_or_set" -> getOrSet(call)

            "cache.lock" -> cacheOf(call).lock(call.need("key"), call.time("ttl")!!, call.text("holder"), call.flag("renew"))?.let {
                names[call.need("as")] = it
                mapOf("fence" to it.fence, "until" to it.until)
            }

            "lease.extend" -> named<Lease>(call).extend(call.time("ttl"))

            "lease.release" -> named<Lease>(call).release()

            "lease.state" -> named<Lease>(call).let { mapOf("lost" to it.isLost, "fence" to it.fence, "until" to it.until) }

            "lease.lost" -> named<Lease>(call).lost.await()

            "next" -> named<Iteration>(call).next().let { if (it == null) mapOf("end" to true) else mapOf("item" to it) }

            "stop" -> when (val found = named<Any>(call)) {
                is Mirror -> found.close()
                else -> (found as Iteration).stop()
            }

            "topic.publish" -> publish(call)

            "topic.publish_many" -> publishMany(call)

            "publisher.publish" -> throw Unsupported("this client has no publisher that gathers messages")

            "topic.read" -> topicOf(call).read(call.long("after") ?: 0, call.int("limit") ?: KEYS, call.time("wait")).map(::messageOf)

            "topic.messages" -> iterate(call, topicOf(call).messages(call.long("after") ?: 0, call.flag("follow")).map(::messageOf))

            "reader.define" -> readerOf(call).define(placeOf(call))

            "reader.read" -> readerOf(call).read(call.int("limit") ?: KEYS, call.time("wait")).map(::messageOf)

            "reader.commit" -> readerOf(call).commit(call.long("position")!!)

            "reader.move" -> readerOf(call).move(placeOf(call)!!)

            "reader.messages" -> iterate(call, readerOf(call).messages(call.flag("follow")).map(::messageOf))

            "reader.drop" -> readerOf(call).drop()

            "group.take" -> groupOf(call).take(call.int("count") ?: 1, call.text("member"), call.time("wait")).map(::deliveryOf)

            "group.ack" -> settledOf(groupOf(call).ack(call.strings("receipts")))

            "group.nack" -> settledOf(groupOf(call).nack(call.strings("receipts"), call.time("delay"), call.text("error")))

            "group.extend" -> settledOf(groupOf(call).extend(call.strings("receipts"), call.time("by")!!))

            "group.give_up" -> settledOf(groupOf(call).giveUp(call.strings("receipts"), call.text("error")))

            "group.messages" -> groupOf(call).consumer(call.int("prefetch") ?: 32, call.text("member"), call.flag("extend")).let { consumer ->
                names[call.need("as")] = Iteration({ consumer.next()?.let(::deliveryOf) }, consumer::stop)
            }

            "delivery.ack" -> deliveryOn(call).ack()

            "delivery.nack" -> deliveryOn(call).nack(call.time("delay"), call.text("error"))

            "delivery.extend" -> deliveryOn(call).extend(call.time("by")!!)

            "delivery.give_up" -> deliveryOn(call).giveUp(call.text("error"))

            "delivery.done" -> deliveryOn(call).done(call.need("script"), call.params)?.let(::answerOf)

            "watch" -> watch(call)

            "watch.position" -> positionOf(named<Iteration>(call).watch?.position)

            "mirror.open" -> openMirror(call)

            "mirror.rows" -> named<Mirror>(call).let { mirror -> mirror.error?.let { throw it } ?: mirror.rows() }

            "mirror.seq" -> named<Mirror>(call).seq

            "mirror.reached" -> named<Mirror>(call).reached(call.long("seq")!!)

            "mirror.copies" -> copies[call.need("on")]?.map { mapOf("rows" to it.rows, "why" to (it.why as? Refusal)?.code) }

            "seal.unseal" -> sealOf(call).unseal(call.need("passphrase"))

            "seal.seal" -> sealOf(call).seal()

            "seal.change" -> sealOf(call).let {
                if (call.flag("rekey")) it.rekey(call.need("old"), call.need("new")) else it.changePassphrase(call.text("old"), call.need("new"))
            }

            "vault.write" -> vaultOf(call).write(call.need("record"), call.value("value"), call.flag("if_absent"), call.long("expect"), call.text("reason"))
                .let { mapOf("written" to it.written, "version" to it.version) }

            "vault.reveal" -> vaultOf(call).reveal(call.need("record"), call.long("version"), call.text("reason"))
                .let { mapOf("id" to it.id, "value" to it.value, "version" to it.version, "at" to it.at, "text" to it.toString()) }

            "vault.list" -> vaultOf(call).list(call.text("prefix") ?: "", call.text("after") ?: "", call.int("limit") ?: KEYS)

            "vault.erase" -> vaultOf(call).erase(call.need("record"), call.text("reason"))

            "backup.file" -> backup(call)

            "load" -> load(call)

            else -> throw Misuse("no such call: $name")
        }

    private companion object {
        const val KEYS = 1000
        const val CHAIN = 16
    }
}

/** Reads calls, begins them in their order, and answers each when it ends. */
fun main(): Unit =
    runBlocking {
        val lines = Channel<String>(Channel.UNLIMITED)
        thread(isDaemon = true) {
            generateSequence(::readlnOrNull).forEach { lines.trySend(it) }
            lines.close()
        }
        val work = SupervisorJob()
        val testee = Testee(CoroutineScope(coroutineContext + work))
        for (line in lines) testee.begin(line)
        kotlin.system.exitProcess(0)
    }

package storeclient

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.selects.select
import java.io.OutputStream
import java.nio.file.Path
import java.time.Instant
import java.util.Optional
import java.util.OptionalLong
import java.util.concurrent.Callable
import kotlin.time.toJavaDuration
import kotlin.time.toKotlinDuration
import java.time.Duration as JavaDuration

private fun <T> block(work: suspend () -> T): T = runBlocking { work() }

/** Takes the items of a flow one by one. The flow goes on only where the next item is asked for. */
internal class Pull<T : Any>(flow: Flow<T>, nodes: Nodes) {
    private val items = Channel<T>()
    private val demand = Channel<Unit>()
    private val work =
        nodes.scope.launch {
            try {
                demand.receive()
                flow.collect {
                    items.send(it)
                    demand.receive()
                }
                items.close()
            } catch (error: RuntimeException) {
                items.close(error)
            }
        }

    /** Returns the next item; null: there is no other. */
    suspend fun next(): T? {
        select {
            demand.onSend(Unit) {}
            work.onJoin {}
        }
        val result = items.receiveCatching()
        result.exceptionOrNull()?.let { throw if (it is CancellationException) ClosedException() else it }
        return result.getOrNull()
    }

    /** Ends the flow. */
    suspend fun end(): Unit = work.cancelAndJoin()
}

/** An iteration over what comes one by one. Its end, [close], ends what it waits for. */
public class BlockingIterator<T : Any> internal constructor(flow: Flow<T>, nodes: Nodes) : Iterator<T>, AutoCloseable {
    private val pull = Pull(flow, nodes)
    private var found: T? = null
    private var isOver = false

    override fun hasNext(): Boolean {
        if (found == null && !isOver) {
            found = block { pull.next() }
            isOver = found == null
        }
        return found != null
    }

    override fun next(): T = if (hasNext()) found!!.also { found = null } else throw NoSuchElementException()

    /** Ends the iteration. */
    override fun close() {
        isOver = true
        block { pull.end() }
    }
}

/** Runs scripts, and blocks its thread until they are done. */
public abstract class BlockingRunner internal constructor(private val runner: Runner, private val owner: Client) {
    /** Runs a script and returns the results of all its statements. */
    @JvmOverloads
    public fun run(script: String, params: Map<String, Any?> = emptyMap(), options: RunOptions = RunOptions()): Answer =
        block { runner.script(script, params, options.options) }

    /** Runs a script and returns the value of its last statement. */
    @JvmOverloads
    public fun query(script: String, params: Map<String, Any?> = emptyMap(), options: RunOptions = RunOptions()): Any? = run(script, params, options).value

    /** Iterates over the rows of a SELECT; see [Runner.rows]. */
    @JvmOverloads
    public fun rows(select: String, params: Map<String, Any?> = emptyMap(), page: Int = 1000): BlockingIterator<Row> =
        BlockingIterator(runner.rows(select, params, page), owner.nodes)
}

/** Options of a script; each method returns other options. */
public class RunOptions private constructor(internal val options: ScriptOptions) {
    public constructor() : this(ScriptOptions())

    /** Limits the script at the node. */
    public fun timeout(timeout: JavaDuration): RunOptions = RunOptions(options.copy(timeout = timeout.toKotlinDuration()))

    /** Keeps a reason with the statements in the statement log. */
    public fun reason(reason: String): RunOptions = RunOptions(options.copy(reason = reason))

    /** Running the script twice does no harm: it is sent again after a broken connection. */
    public fun repeatable(): RunOptions = RunOptions(options.copy(isRepeatable = true))

    /** Keeps a script that only reads in the statement log too. */
    public fun record(): RunOptions = RunOptions(options.copy(record = true))

    /** Has the node show a sequence. */
    public fun after(seq: Long): RunOptions = RunOptions(options.copy(after = seq))

    /** Sees every commit of any node made before. */
    public fun current(): RunOptions = RunOptions(options.copy(current = true))

    /** Names the database of a client's script. */
    public fun database(ns: String, db: String): RunOptions = RunOptions(options.copy(ns = ns, db = db))
}

/** A [Client] whose calls block. It shares the connections of its client, and closes it. */
public class BlockingClient internal constructor(private val client: Client) : BlockingRunner(client, client), AutoCloseable {
    /** Connects if the client is not connected yet, and returns the node's welcome. */
    public fun connect(): Welcome = block { client.connect() }

    /** Sends a round trip to the node. */
    public fun ping(): Unit = block { client.ping() }

    /** Returns a handle on a database. It sends nothing. */
    public fun database(ns: String, db: String): BlockingDatabase = BlockingDatabase(client.database(ns, db))

    /** Seal of the vaults without a passphrase of their own. */
    public val storeSeal: BlockingSeal get() = BlockingSeal(client.storeSeal)

    /** Writes a snapshot of the node, of a namespace, or of a database. */
    @JvmOverloads
    public fun backup(to: OutputStream, ns: String? = null, db: String? = null): BackupFile = block { client.backup(to, ns, db) }

    /** Writes a snapshot to a new file. */
    @JvmOverloads
    public fun backupFile(path: Path, ns: String? = null, db: String? = null): BackupFile = block { client.backupFile(path, ns, db) }

    /** Waits for the calls in flight and closes the connections. */
    override fun close(): Unit = block { client.close() }

    override fun toString(): String = client.toString()
}

/** A [Database] whose calls block. */
public class BlockingDatabase internal constructor(private val database: Database) : BlockingRunner(database, database.client) {
    /** Returns a transaction to add statements to. */
    public fun transaction(): BlockingTransaction = BlockingTransaction(database.transaction())

    /** Takes a snapshot of the store to read in. The caller closes it. */
    @JvmOverloads
    public fun moment(keep: JavaDuration = JavaDuration.ofMinutes(1)): BlockingMoment =
        BlockingMoment(block { database.moment(keep.toKotlinDuration()) }, database.client)

    /** Returns a handle on the keys of a cache space. */
    public fun cache(space: String): BlockingCache = BlockingCache(database.cache(space), database.client)

    /** Returns a handle on a topic. */
    public fun topic(name: String): BlockingTopic = BlockingTopic(database.topic(name))

    /** Returns a watch, which follows the changes of a table. */
    @JvmOverloads
    public fun watch(
        table: String,
        from: Position? = null,
        where: String? = null,
        actions: Set<Action>? = null,
        before: Boolean = false,
    ): BlockingWatch = BlockingWatch(database.watch(table, from, where, actions, before), database.client)

    /** Reads a table in full and returns a copy that is kept in step until it is closed. */
    @JvmOverloads
    public fun mirror(table: String, where: String? = null): BlockingMirror = BlockingMirror(block { database.mirror(table, where) })

    /** Returns a handle on a vault. */
    public fun vault(name: String): BlockingVault = BlockingVault(database.vault(name))
}

/** A [Transaction] whose calls block. */
public class BlockingTransaction internal constructor(private val transaction: Transaction) {
    /** Adds one or more statements. */
    @JvmOverloads
    public fun add(statements: String, params: Map<String, Any?> = emptyMap()): BlockingTransaction = apply { transaction.add(statements, params) }

    /** Commits all statements or none. */
    public fun run(): Answer = block { transaction.run() }
}

/** A [Moment] whose calls block. */
public class BlockingMoment internal constructor(private val moment: Moment, client: Client) : BlockingRunner(moment, client), AutoCloseable {
    /** Position of the moment, to follow a table from. */
    public val position: Position get() = moment.position

    /** Ends the moment. */
    override fun close(): Unit = block { moment.close() }
}

/** A [Cache] whose calls block. */
public class BlockingCache internal constructor(private val cache: Cache, private val client: Client) {
    /** Returns the value of a key; null: there is no such key, or it holds null. */
    public fun get(key: String): Any? = block { cache.get(key) }

    /** Returns a key with its value. */
    public fun entry(key: String): Optional<CacheEntry> = Optional.ofNullable(block { cache.entry(key) })

    /** Sets a key, for a time if one is given. */
    @JvmOverloads
    public fun set(key: String, value: Any?, ttl: JavaDuration? = null, keepTtl: Boolean = false): Unit =
        block { cache.set(key, value, ttl?.toKotlinDuration(), keepTtl) }

    /** Sets a key that does not exist, and returns true if it was set. */
    @JvmOverloads
    public fun setIfAbsent(key: String, value: Any?, ttl: JavaDuration? = null): Boolean = block { cache.setIfAbsent(key, value, ttl?.toKotlinDuration()) }

    /** Sets a key that exists, and returns true if it was set. */
    @JvmOverloads
    public fun setIfPresent(key: String, value: Any?, ttl: JavaDuration? = null): Boolean =
        block { cache.setIfPresent(key, value, ttl?.toKotlinDuration()) }

    /** Sets a key that holds [expect], in type and value, and returns true if it was set. */
    @JvmOverloads
    public fun compareAndSet(key: String, expect: Any?, value: Any?, ttl: JavaDuration? = null): Boolean =
        block { cache.compareAndSet(key, expect, value, ttl?.toKotlinDuration()) }

    /** Deletes a key, and returns true if it existed. */
    public fun delete(key: String): Boolean = block { cache.delete(key) }

    /** Adds to a counter, which starts at 0, and returns the new value. */
    @JvmOverloads
    public fun incr(key: String, by: Long = 1): Long = block { cache.incr(key, by) }

    /** Returns the time to live of a key, if it expires. */
    public fun ttl(key: String): Optional<JavaDuration> = Optional.ofNullable(block { cache.ttl(key) }?.toJavaDuration())

    /** Sets the expiry of a key, and returns true if it exists. */
    public fun expire(key: String, ttl: JavaDuration): Boolean = block { cache.expire(key, ttl.toKotlinDuration()) }

    /** Removes the expiry of a key, and returns true if it exists. */
    public fun persist(key: String): Boolean = block { cache.persist(key) }

    /** Returns at most 1000 keys with a prefix behind another key, in the order of their bytes. */
    @JvmOverloads
    public fun keys(prefix: String = "", after: String = "", limit: Int = 1000): List<String> = block { cache.keys(prefix, after, limit) }

    /** Iterates over all keys with a prefix in the order of their bytes. */
    @JvmOverloads
    public fun allKeys(prefix: String = ""): BlockingIterator<String> = BlockingIterator(cache.allKeys(prefix), client.nodes)

    /** Returns the value of a key. Without one it calls [load] and stores the result. */
    public fun getOrSet(key: String, ttl: JavaDuration?, load: Callable<Any?>): Any? =
        block { cache.getOrSet(key, ttl?.toKotlinDuration()) { load.call() } }

    /** Acquires a lease on a key; empty: another holder has it. */
    @JvmOverloads
    public fun lock(key: String, ttl: JavaDuration, renew: Boolean = false, holder: String? = null): Optional<BlockingLease> =
        Optional.ofNullable(block { cache.lock(key, ttl.toKotlinDuration(), holder, renew) }?.let(::BlockingLease))
}

/** A [Lease] whose calls block. */
public class BlockingLease internal constructor(private val lease: Lease) : AutoCloseable {
    /** Fencing token: it grows with each holder of the key. */
    public val fence: Long get() = lease.fence

    /** Name of the holder. */
    public val holder: String get() = lease.holder

    /** Time at which the lease ends, by the node's clock. */
    public val until: Instant get() = lease.until

    /** True once the lease is known to be over. */
    public val isLost: Boolean get() = lease.isLost

    /** Makes the lease last a time from now, and returns true if it is held. */
    @JvmOverloads
    public fun extend(ttl: JavaDuration? = null): Boolean = block { lease.extend(ttl?.toKotlinDuration()) }

    /** Releases the lease, and returns true if it was still held. */
    public fun release(): Boolean = block { lease.release() }

    /** Releases the lease. */
    override fun close() {
        release()
    }
}

/** Options of a published message; each method returns other options. */
public class PublishOptions private constructor(
    internal val key: String?,
    internal val id: String?,
    internal val headers: Map<String, String>?,
    internal val delay: JavaDuration?,
    internal val expect: OptionalLong,
) {
    public constructor() : this(null, null, null, null, OptionalLong.empty())

    /** Key of the message. */
    public fun key(key: String): PublishOptions = PublishOptions(key, id, headers, delay, expect)

    /** Id of the message: a second one is not appended. */
    public fun id(id: String): PublishOptions = PublishOptions(key, id, headers, delay, expect)

    /** Headers of the message. */
    public fun headers(headers: Map<String, String>): PublishOptions = PublishOptions(key, id, headers, delay, expect)

    /** Time before the delivery to groups. */
    public fun delay(delay: JavaDuration): PublishOptions = PublishOptions(key, id, headers, delay, expect)

    /** Position that the topic's last message must have. */
    public fun expect(position: Long): PublishOptions = PublishOptions(key, id, headers, delay, OptionalLong.of(position))
}

private fun OptionalLong.orNull(): Long? = if (isPresent) asLong else null

/** A [Topic] whose calls block. */
public class BlockingTopic internal constructor(private val topic: Topic) {
    private val client = topic.database.client

    /** Appends a message. It is durable when the call returns. */
    @JvmOverloads
    public fun publish(value: Any?, options: PublishOptions = PublishOptions()): Published =
        block { options.run { topic.publish(value, key, id, headers, delay?.toKotlinDuration(), expect = expect.orNull()) } }

    /** Appends messages in one commit, and returns the position of the first. */
    @JvmOverloads
    public fun publishMany(values: List<Any?>, options: PublishOptions = PublishOptions()): Long {
        if (options.id != null) throw ValueException("id", "a message with an id goes alone")
        return block { options.run { topic.publishMany(values, key, headers, delay?.toKotlinDuration(), expect = expect.orNull()) } }.first
    }

    /** Returns messages behind a position, oldest first. */
    @JvmOverloads
    public fun read(after: Long = 0, limit: Int = 1000, wait: JavaDuration? = null): List<Message> =
        block { topic.read(after, limit, wait?.toKotlinDuration()) }

    /** Iterates over the messages behind a position, to the end of the topic or for ever. */
    @JvmOverloads
    public fun messages(after: Long = 0, follow: Boolean = false): BlockingIterator<Message> = BlockingIterator(topic.messages(after, follow), client.nodes)

    /** Returns a handle on a reader. */
    public fun reader(name: String): BlockingReader = BlockingReader(topic.reader(name), client)

    /** Returns a handle on a consumer group. */
    public fun group(name: String): BlockingGroup = BlockingGroup(topic.group(name))

    /** Returns the answer of INFO FOR TOPIC. */
    public fun info(): Row = block { topic.info() }
}

/** A [Reader] whose calls block. */
public class BlockingReader internal constructor(private val reader: Reader, private val client: Client) {
    /** Declares the reader if it does not exist: at the start of the topic, or at a place. */
    @JvmOverloads
    public fun define(at: Place? = null): Unit = block { reader.define(at) }

    /** Returns messages behind the reader's position, without moving it. */
    @JvmOverloads
    public fun read(limit: Int = 1000, wait: JavaDuration? = null): List<Message> = block { reader.read(limit, wait?.toKotlinDuration()) }

    /** Moves the reader behind a position. */
    public fun commit(position: Long): Unit = block { reader.commit(position) }

    /** Moves the reader to a place. */
    public fun move(to: Place): Unit = block { reader.move(to) }

    /** Iterates over the messages behind the reader's position. */
    @JvmOverloads
    public fun messages(follow: Boolean = false): BlockingIterator<Message> = BlockingIterator(reader.messages(follow), client.nodes)

    /** Drops the reader. */
    public fun drop(): Unit = block { reader.drop() }
}

/** A [Delivery] whose calls block. */
public class BlockingDelivery internal constructor(private val delivery: Delivery) {
    /** The delivered message. */
    public val message: Message get() = delivery

    /** Value of the message. */
    public val value: Any? get() = delivery.value

    /** Argument of [BlockingGroup.ack]. */
    public val receipt: String get() = delivery.receipt

    /** Number of deliveries, this one included. */
    public val attempt: Int get() = delivery.attempt

    /** Acknowledges the message, durably. False: it came too late. */
    public fun ack(): Boolean = block { delivery.ack() }

    /** Runs a script and acknowledges the message in one transaction. Empty: it came too late. */
    @JvmOverloads
    public fun done(script: String, params: Map<String, Any?> = emptyMap()): Optional<Answer> = Optional.ofNullable(block { delivery.done(script, params) })

    /** Returns the message to the group. False: it came too late. */
    @JvmOverloads
    public fun nack(delay: JavaDuration? = null, error: String? = null): Boolean = block { delivery.nack(delay?.toKotlinDuration(), error) }

    /** Sets the deadline to a time from now. False: it came too late. */
    public fun extend(by: JavaDuration): Boolean = block { delivery.extend(by.toKotlinDuration()) }

    /** Makes the message a dead letter. False: it came too late. */
    @JvmOverloads
    public fun giveUp(error: String? = null): Boolean = block { delivery.giveUp(error) }
}

/** A [Group] whose calls block. */
public class BlockingGroup internal constructor(private val group: Group) {
    /** Takes messages. */
    @JvmOverloads
    public fun take(count: Int = 1, wait: JavaDuration? = null, member: String? = null): List<BlockingDelivery> =
        block { group.take(count, member, wait?.toKotlinDuration()) }.map(::BlockingDelivery)

    /** Acknowledges messages by their receipts. */
    public fun ack(receipts: List<String>): Settled = block { group.ack(receipts) }

    /** Returns messages to the group. */
    @JvmOverloads
    public fun nack(receipts: List<String>, delay: JavaDuration? = null, error: String? = null): Settled =
        block { group.nack(receipts, delay?.toKotlinDuration(), error) }

    /** Sets the deadlines of messages to a time from now. */
    public fun extend(receipts: List<String>, by: JavaDuration): Settled = block { group.extend(receipts, by.toKotlinDuration()) }

    /** Makes messages dead letters. */
    @JvmOverloads
    public fun giveUp(receipts: List<String>, error: String? = null): Settled = block { group.giveUp(receipts, error) }

    /** Returns a consumer, which any number of threads may share. */
    @JvmOverloads
    public fun consumer(prefetch: Int = 32, extend: Boolean = false, member: String? = null): BlockingConsumer =
        BlockingConsumer(group.consumer(prefetch, member, extend))

    /** Returns the answer of INFO FOR GROUP. */
    public fun info(): Row = block { group.info() }
}

/** A [Consumer] whose calls block. */
public class BlockingConsumer internal constructor(private val consumer: Consumer) : AutoCloseable {
    /** Waits for the next message; empty: the consumer was stopped. */
    public fun next(): Optional<BlockingDelivery> = Optional.ofNullable(block { consumer.next() }?.let(::BlockingDelivery))

    /** Number of acknowledgements that came too late. */
    public val stale: Int get() = consumer.stale

    /** Stops the consumer. */
    override fun close(): Unit = block { consumer.stop() }
}

/** A [Watch] whose calls block. */
public class BlockingWatch internal constructor(private val watch: Watch, private val client: Client) {
    /** Position to resume from; null if the watch has not begun. */
    public val position: Position? get() = watch.position

    /** Ends the iteration after the current commit. */
    public fun stop(): Unit = watch.stop()

    /** Iterates over the commits that change the table. */
    public fun commits(): BlockingIterator<Commit> = BlockingIterator(watch.commits(), client.nodes)
}

/** A [Mirror] whose calls block. */
public class BlockingMirror internal constructor(private val mirror: Mirror) : AutoCloseable {
    /** Sequence that the mirror shows. */
    public val seq: Long get() = mirror.seq

    /** Number of records. */
    public val size: Int get() = mirror.size

    /** Returns a record; null: there is no such record. */
    public fun get(id: RecordId): Row? = mirror[id]

    /** Returns the records, in no order. All are of one commit. */
    public fun rows(): List<Row> = mirror.rows()

    /** Waits until the mirror shows another sequence. */
    public fun changed(since: Long): Unit = block { mirror.changed(since) }

    /** Waits until the mirror shows a sequence. */
    public fun reached(seq: Long): Unit = block { mirror.reached(seq) }

    /** Stops following the table. */
    override fun close(): Unit = block { mirror.close() }
}

/** A [Seal] whose calls block. */
public open class BlockingSeal internal constructor(private val seal: Seal) {
    /** Opens the vaults and returns the time at which they close. */
    public fun unseal(passphrase: String): Instant = block { seal.unseal(passphrase) }

    /** Closes the vaults. */
    public fun seal(): Unit = block { seal.seal() }

    /** Changes the passphrase and returns the number of keys wrapped again. Without [old] it sets the first. */
    public fun changePassphrase(old: String?, new: String): Long = block { seal.changePassphrase(old, new) }

    /** Changes the passphrase after a leak: all keys are replaced and every value is encrypted again. */
    public fun rekey(old: String, new: String): Long = block { seal.rekey(old, new) }
}

/** A [Vault] whose calls block. */
public class BlockingVault internal constructor(private val vault: Vault) : BlockingSeal(vault) {
    /** Writes the next version of a record. */
    @JvmOverloads
    public fun write(id: String, value: Any?, reason: String? = null, ifAbsent: Boolean = false, expectVersion: Long? = null): Written =
        block { vault.write(id, value, ifAbsent, expectVersion, reason) }

    /** Returns the value of a record. */
    @JvmOverloads
    public fun reveal(id: String, reason: String? = null, version: Long? = null): Revealed = block { vault.reveal(id, version, reason) }

    /** Returns ids with a prefix behind another id, in the order of their bytes. */
    @JvmOverloads
    public fun list(prefix: String = "", after: String = "", limit: Int = 1000): List<String> = block { vault.list(prefix, after, limit) }

    /** Erases a record with all of its versions, and returns true if it existed. */
    @JvmOverloads
    public fun erase(id: String, reason: String? = null): Boolean = block { vault.erase(id, reason) }

    /** Returns the answer of INFO FOR VAULT. */
    public fun info(): Row = block { vault.info() }

    /** Returns entries of the audit trail, newest first. */
    @JvmOverloads
    public fun audit(limit: Int, before: Long? = null): List<Row> = block { vault.audit(limit, before) }
}

package storeclient

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Job
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.launch
import java.security.SecureRandom
import java.time.Instant
import java.util.HexFormat
import kotlin.time.Duration
import kotlin.time.toKotlinDuration
import java.time.Duration as JavaDuration

/** Keys in one listing. */
private const val KEYS_MOST = 1000

/** Renewals of a lease within its time. */
private const val RENEWALS = 3

private const val HOLDER_BYTES = 16
private val RANDOM = SecureRandom()

/** A handle on the keys of one cache space. Calls made at one time travel together and share a commit. */
public class Cache internal constructor(private val db: Database, private val space: String) {
    internal val client = db.client

    private fun request(op: String, vararg fields: Any?): Request =
        Request(Kind.KV, Body("op", op, "ns", db.ns, "db", db.db, "space", space, *fields), client.timeout?.plus(client.grace))

    private suspend fun read(op: String, vararg fields: Any?): Row = client.ask(request(op, *fields), How(isRepeatable = true)).asBody()

    internal suspend fun write(op: String, vararg fields: Any?): Row = client.change(request(op, *fields))

    /** Returns the value of a key; null: there is no such key, or it holds null, which [entry] tells apart. */
    public suspend fun get(key: String): Any? = read("get", "key", key)["value"]

    /** Returns a key with its value and its time to live; null: there is no such key. */
    public suspend fun entry(key: String): CacheEntry? {
        val found = read("get", "key", key)
        if ("value" !in found) return null
        return CacheEntry(key, found["value"], found.optional<JavaDuration>("ttl")?.toKotlinDuration())
    }

    /**
     * Sets a key.
     *
     * @param ttl time to live. Without it the key does not expire, or gets the default of its space
     * @param keepTtl keep the key's expiry, which `set` clears otherwise
     */
    public suspend fun set(key: String, value: Any?, ttl: Duration? = null, keepTtl: Boolean = false) {
        write("set", "key", key, "value", Given(value), "expire", ttl?.let { positive(it, "ttl") }, "keep", keepTtl.takeIf { it })
    }

    /** Sets a key that does not exist, and returns true if it was set. */
    public suspend fun setIfAbsent(key: String, value: Any?, ttl: Duration? = null): Boolean = setIf("absent", key, value, ttl)

    /** Sets a key that exists, and returns true if it was set. */
    public suspend fun setIfPresent(key: String, value: Any?, ttl: Duration? = null): Boolean = setIf("present", key, value, ttl)

    private suspend fun setIf(condition: String, key: String, value: Any?, ttl: Duration?): Boolean =
        write("set", "key", key, "value", Given(value), "if", condition, "expire", ttl?.let { positive(it, "ttl") }).needed("written")

    /**
     * Sets a key that holds [expect], in type and value, and returns true if it was set. An [expect] of [None] means
     * that the key does not exist.
     */
    public suspend fun compareAndSet(key: String, expect: Any?, value: Any?, ttl: Duration? = null): Boolean =
        write("swap", "key", key, "expect", Given(expect), "value", Given(value), "expire", ttl?.let { positive(it, "ttl") }).needed("written")

    /** Deletes a key, and returns true if it existed. */
    public suspend fun delete(key: String): Boolean = write("delete", "key", key).needed("deleted")

    /** Adds to a counter, which starts at 0, and returns the new value. */
    public suspend fun incr(key: String, by: Long = 1): Long = write("incr", "key", key, "by", by).needed("value")

    /** Returns the time to live of a key; null: it does not expire, or there is no such key. */
    public suspend fun ttl(key: String): Duration? = entry(key)?.ttl

    /** Sets the expiry of a key, and returns true if it exists. */
    public suspend fun expire(key: String, ttl: Duration): Boolean = write("expire", "key", key, "expire", positive(ttl, "ttl")).needed("found")

    /** Removes the expiry of a key, and returns true if it exists. */
    public suspend fun persist(key: String): Boolean = write("persist", "key", key).needed("found")

    /** Returns at most 1000 keys with a prefix behind another key, in the order of their bytes. */
    public suspend fun keys(prefix: String = "", after: String = "", limit: Int = KEYS_MOST): List<String> =
        read("keys", "prefix", prefix, "after", after, "limit", limit).strings("keys")

    /** Returns all keys with a prefix in the order of their bytes. */
    public fun allKeys(prefix: String = ""): Flow<String> =
        flow {
            var after = ""
            while (true) {
                val page = keys(prefix, after)
                page.forEach { emit(it) }
                after = page.lastOrNull() ?: after
                if (page.size < KEYS_MOST) return@flow
            }
        }

    /**
     * Returns the value of a key. Without one it calls [load] and stores the result. Racing callers each call [load];
     * the first to store wins, and all return its value. Without [ttl] the default of the space applies.
     */
    public suspend fun getOrSet(key: String, ttl: Duration? = null, load: suspend () -> Any?): Any? {
        entry(key)?.let { return it.value }
        val made = load()
        while (true) {
            if (setIfAbsent(key, made, ttl)) return normal(made)
            entry(key)?.let { return it.value }
        }
    }

    /**
     * Acquires a lease on a key; null: another holder has it.
     *
     * @param holder name of the holder, random by default. The same holder extends its lease by locking again
     * @param renew extend the lease by itself until it is released or lost
     */
    public suspend fun lock(key: String, ttl: Duration, holder: String? = null, renew: Boolean = false): Lease? {
        val name = holder ?: HexFormat.of().formatHex(ByteArray(HOLDER_BYTES).also(RANDOM::nextBytes))
        val found = write("lock", "key", key, "holder", name, "expire", positive(ttl, "ttl"))
        if (!found.needed<Boolean>("held")) return null
        val lease = Lease(this, key, name, ttl, found.needed("fence"), found.needed("until"))
        if (renew) lease.startRenewing()
        return lease
    }
}

/**
 * A key of a cache.
 *
 * @property key name of the key
 * @property value value of the key
 * @property ttl time to live; null: it does not expire
 */
public class CacheEntry internal constructor(public val key: String, public val value: Any?, public val ttl: Duration?)

/**
 * A lock that is held until it is released or expires. It is a lease and no mutex: pass [fence] to the resource that
 * it protects.
 *
 * @property key key of the lock
 * @property holder name of the holder
 * @property fence fencing token: it grows with each holder of the key
 */
public class Lease internal constructor(
    private val cache: Cache,
    public val key: String,
    public val holder: String,
    private val ttl: Duration,
    public val fence: Long,
    until: Instant,
) : Closeable {
    private val over = CompletableDeferred<Unit>()
    private val released = Job(cache.client.nodes.closing)
    private var renewing: Job? = null

    /** Time at which the lease ends, by the node's clock. */
    @Volatile
    public var until: Instant = until
        private set

    /** Completes once the lease is known to be over: it was released, or an extension found that it had expired. */
    public val lost: Deferred<Unit> get() = over

    /** True once the lease is known to be over. */
    public val isLost: Boolean get() = over.isCompleted

    /** Makes the lease last [ttl], by default the time that it was acquired for, and returns true if it is held. */
    public suspend fun extend(ttl: Duration? = null): Boolean {
        if (isLost) return false
        val expire = positive(ttl ?: this.ttl, "ttl")
        val found = cache.write("lock", "key", key, "holder", holder, "fence", fence, "expire", expire)
        if (found.needed("held")) {
            until = found.needed("until")
            return true
        }
        over.complete(Unit)
        return false
    }

    /** Releases the lease, and returns true if it was still held. */
    public suspend fun release(): Boolean {
        released.cancel()
        renewing?.join()
        if (isLost) return false
        val found = cache.write("unlock", "key", key, "holder", holder, "fence", fence)
        over.complete(Unit) // nothing of it is left to be extended, whatever the answer
        return found.needed("released")
    }

    /** Releases the lease. */
    override suspend fun close() {
        release()
    }

    internal fun startRenewing() {
        renewing = cache.client.nodes.scope.launch { renew() }
    }

    private suspend fun renew() {
        while (true) {
            pause(ttl / RENEWALS, released)
            if (released.isStopped) return
            try {
                if (!extend()) break
            } catch (_: ClosedException) {
                break
            } catch (_: StoreException) {
                continue // it may pass before the lease ends, and the next extension tells
            }
        }
        released.cancel()
    }
}

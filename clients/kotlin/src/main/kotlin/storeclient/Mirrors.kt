package storeclient

import kotlinx.coroutines.Job
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext

/**
 * A mirror was read in full.
 *
 * @property seq sequence that the mirror shows
 * @property rows number of records
 * @property why cause of reading again; null of the first time
 */
public class Copied internal constructor(public val seq: Long, public val rows: Int, public val why: Throwable?)

private val COPIES_AGAIN = setOf(Code.LOG_PRUNED, Code.DIVERGED, Code.UNKNOWN)

/**
 * A copy of a table, kept in step with it. It is read in full at one moment of the store and followed from there. Where
 * the log no longer holds what follows, the table is read again; until that is done, and while the node is away, the
 * mirror shows its last state. It changes by whole commits.
 */
public class Mirror internal constructor(
    private val db: Database,
    private val table: String,
    private val where: String?,
    private val page: Int,
    private val onCopy: ((Copied) -> Unit)?,
) : Closeable {
    private val quoted = quoteName(table)
    private val nodes = db.client.nodes
    private val stopping = Job(nodes.closing)
    private val news = News()
    private var state = HashMap<RecordId, Row>()
    private var position = Position(0)
    private var failure: StoreException? = null
    private var work: Job? = null

    internal suspend fun open() {
        var isOpen = false
        try {
            copy(null)
            isOpen = true
        } finally {
            if (!isOpen) stopping.cancel()
        }
        work = nodes.scope.launch { keep() }
    }

    private suspend fun keep() {
        var ended: StoreException? = null
        while (ended == null && !stopping.isStopped) {
            try {
                follow()
            } catch (error: StoreException) {
                ended = if (stopping.isStopped) null else again(error)
            }
        }
        val error = if (stopping.isStopped || ended == null) ClosedException("the mirror, or its client, has been closed") else ended
        synchronized(news) { failure = error }
        stopping.cancel()
        news.announce()
    }

    /** Reads the table again where that helps. Returns the error that ends the mirror. */
    private suspend fun again(error: StoreException): StoreException? {
        if (error !is Refusal || error.code !in COPIES_AGAIN) return error
        return try {
            copy(error)
            null
        } catch (other: StoreException) {
            other
        }
    }

    private suspend fun follow() {
        val watch = db.watch(table, synchronized(news) { position }, where)
        watch.isPatient = true // the table was read a moment ago: a node that is away comes back
        watch.onMove = { apply(emptyList(), it) }
        val handle = stopping.invokeOnCompletion { watch.stop() }
        try {
            watch.commits().collect { apply(it.changes, it.position) }
        } finally {
            handle.dispose()
        }
    }

    /** Reads all of it. If it was read before, a node that is away is waited for. */
    private suspend fun copy(why: StoreException?) {
        val pause = retryBackoff()
        while (true) {
            try {
                read()
                synchronized(news) { onCopy?.let { Copied(position.seq, state.size, why) } }?.let { onCopy?.invoke(it) }
                return
            } catch (error: StoreException) {
                val hasLostMoment = error is Refusal && error.code == Code.UNKNOWN && "moment" in error.detail
                if (stopping.isStopped || (!hasLostMoment && !(why != null && error.isOutage()))) throw error
            }
            pause.pause(stopping)
        }
    }

    private suspend fun read() {
        val moment = db.moment()
        val found = HashMap<RecordId, Row>()
        try {
            moment.rows("SELECT * FROM $quoted${if (where == null) "" else " WHERE $where"}", page = page).collect { found[it["id"] as RecordId] = it }
        } finally {
            withContext(NonCancellable) { leave(moment) }
        }
        synchronized(news) {
            state = found
            position = moment.position
        }
        news.announce()
    }

    /** Ends a moment. It ends by itself where the node cannot be told. */
    private suspend fun leave(moment: Moment) {
        try {
            moment.close()
        } catch (_: StoreException) {
            return
        }
    }

    private fun apply(changes: List<Change>, to: Position) {
        synchronized(news) {
            for (change in changes) if (change.value == null) state.remove(change.id) else state[change.id] = change.value
            position = to
        }
        news.announce()
    }

    /** Sequence that the mirror shows. It advances with commits elsewhere too, every 15 seconds. */
    public val seq: Long get() = synchronized(news) { position.seq }

    /** Number of records. */
    public val size: Int get() = synchronized(news) { state.size }

    /** Error that ended the mirror; null while it is kept in step. */
    public val error: StoreException? get() = synchronized(news) { failure }

    /** Returns a record. */
    public operator fun get(id: RecordId): Row? = synchronized(news) { state[id] }

    /** Returns the records, in no order. All are of one commit. */
    public fun rows(): List<Row> = synchronized(news) { state.values.toList() }

    /** Waits until the mirror shows another sequence than [since]. */
    public suspend fun changed(since: Long): Unit = await { position.seq != since }

    /** Waits until the mirror shows a sequence, such as the `seq` of an answer. */
    public suspend fun reached(seq: Long): Unit = await { position.seq >= seq }

    private suspend fun await(isMet: () -> Boolean) {
        news.await { synchronized(news) { isMet() || failure != null } }
        synchronized(news) { if (!isMet()) failure?.let { throw it } }
    }

    /** Stops following the table. The records of the mirror stay. */
    override suspend fun close() {
        stopping.cancel()
        work?.join()
    }
}

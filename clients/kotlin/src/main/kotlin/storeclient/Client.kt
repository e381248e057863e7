package storeclient

import kotlinx.coroutines.CancellationException
import java.io.OutputStream
import java.nio.file.Path
import kotlin.time.Duration
import kotlin.time.Duration.Companion.minutes
import kotlin.time.Duration.Companion.seconds

/** Nodes that are asked for reads. */
public enum class Reads {
    /** The leader. */
    LEADER,

    /** All nodes in turn: scripts that only read, and feeds. A caller never reads less than it has seen or done. */
    ANY,
}

/** Moments whose nodes are remembered. */
private const val MAKERS_MOST = 1024

/**
 * A handle on a store: one for a whole program. All calls share one connection to each node. It connects with the
 * first call and reconnects by itself.
 *
 * @param addresses `host:port` of a node, or of several nodes of one store, with commas between
 * @param token a token of `POST /session`, in the place of user and password. It is valid at one node
 * @param tls secures the connections
 * @param timeout limit of each script and operation at the node
 * @param connectTimeout limit of making a connection, all attempts together
 * @param reads nodes that are asked for reads
 * @param onConnection called with each event of a connection, one after the other
 * @param trace called at the start of each call with its name, such as `KV get`. What it returns is called at the end
 */
public class Client internal constructor(
    addresses: List<String>,
    user: String?,
    password: String?,
    token: String?,
    tls: Tls?,
    internal val timeout: Duration?,
    connectTimeout: Duration,
    private val reads: Reads,
    onConnection: ((ConnectionEvent) -> Unit)?,
    private val trace: ((String) -> ((Throwable?) -> Unit)?)?,
    pulse: Pulse,
) : Runner(), Closeable {
    @JvmOverloads
    public constructor(
        addresses: String,
        user: String? = null,
        password: String? = null,
        token: String? = null,
        tls: Tls? = null,
        timeout: Duration? = null,
        connectTimeout: Duration = 10.seconds,
        reads: Reads = Reads.LEADER,
        onConnection: ((ConnectionEvent) -> Unit)? = null,
        trace: ((String) -> ((Throwable?) -> Unit)?)? = null,
    ) : this(listOf(addresses), user, password, token, tls, timeout, connectTimeout, reads, onConnection, trace, Pulse())

    internal val nodes: Nodes
    internal val seen = Seen()

    /** Time for the node's own answer behind a deadline. */
    internal val grace = pulse.grace

    /** Nodes that have made moments: others know nothing of them. */
    private val makers =
        object : LinkedHashMap<String, StoreNode>() {
            override fun removeEldestEntry(eldest: Map.Entry<String, StoreNode>) = size > MAKERS_MOST
        }

    init {
        require(user == null || token == null) { "sign in with user and password, or with a token, not with both" }
        require(user != null || password == null) { "a password needs a user" }
        positive(connectTimeout, "connectTimeout")
        if (timeout != null) positive(timeout, "timeout")
        val credential = Credential(user, if (user == null) null else password ?: "", token)
        nodes = Nodes(addresses, credential, tls, pulse, connectTimeout, onConnection)
    }

    /** Connects if the client is not connected yet, and returns the node's welcome. */
    public suspend fun connect(): Welcome = nodes.findHome().conn!!.welcome

    /** Sends a round trip to the node. */
    public suspend fun ping() {
        ask(Request(Kind.PING, null, nodes.connectTimeout), How(isRepeatable = true))
    }

    /** Returns a handle on a database. It sends nothing. */
    public fun database(ns: String, db: String): Database = Database(this, checkName(ns), checkName(db))

    /** Seal of the vaults without a passphrase of their own. */
    public val storeSeal: Seal get() = Seal(this, null, null, null)

    /**
     * Writes a snapshot of the node, no faster than [to] takes it.
     *
     * @param ns limits the backup to a namespace, or with [db] to one database
     * @param reason kept with the statement in the statement log
     * @param onProgress called after each part with the bytes written and the bytes in total
     */
    public suspend fun backup(
        to: OutputStream,
        ns: String? = null,
        db: String? = null,
        reason: String? = null,
        onProgress: ((Long, Long) -> Unit)? = null,
    ): BackupFile = backupTo(this, to, BackupScope(ns, db, reason, onProgress))

    /**
     * Writes a snapshot to a new file, which gets its name once it is complete and synced. The arguments are those of
     * [backup]. A file that exists is refused with [java.nio.file.FileAlreadyExistsException].
     */
    public suspend fun backupFile(
        path: Path,
        ns: String? = null,
        db: String? = null,
        reason: String? = null,
        onProgress: ((Long, Long) -> Unit)? = null,
    ): BackupFile = backupToFile(this, path, BackupScope(ns, db, reason, onProgress))

    /** Returns the same client for Java, and for code that blocks its thread. Both share the connections. */
    public fun blocking(): BlockingClient = BlockingClient(this)

    /**
     * Waits for the calls in flight and closes the connections. Calls that only wait for messages or changes end with
     * [ClosedException], and so does every later call.
     */
    override suspend fun close() {
        if (!nodes.isClosed) nodes.close()
    }

    override fun toString(): String = "storeclient to ${nodes.given}"

    // --- requests ----------------------------------------------------------------------------------------

    override suspend fun script(text: String, params: Row, options: ScriptOptions): Answer {
        val timeout = options.timeout?.let { positive(it, "timeout") } ?: timeout
        val body =
            Body(
                "script", text, "params", params.ifEmpty { null }, "ns", options.ns, "db", options.db,
                "timeout", timeout, "reason", options.reason, "moment", options.moment, "keep", options.keep,
                "record", options.record.takeIf { it }, "current", options.current.takeIf { it },
                "after", options.after?.takeIf { it > 0 },
            )
        val isRead = readsAnywhere && seemsToRead(text) && options.run { moment == null && reason == null && !record && !current }
        val maker = options.moment?.let { synchronized(makers) { makers[it] } }
        val request = Request(Kind.RUN, body, timeout?.plus(grace), options.waits)
        try {
            return ask(request, How(options.isRepeatable, isRead, maker)) as Answer
        } catch (error: StoreException) {
            if (error is Refusal && error.committed != 0L) {
                seen.reach(error.committed)
            } else if (error is OutcomeUnknownException) {
                seen.miss()
            }
            throw error
        } catch (error: CancellationException) {
            seen.miss()
            throw error
        }
    }

    internal suspend fun ask(request: Request, how: How): Any? {
        val onEnd = trace?.invoke(request.body?.get("op")?.let { "${request.kind} $it" } ?: request.kind.name)
        try {
            return attempt(request, how).also { onEnd?.invoke(null) }
        } catch (error: StoreException) {
            val ended = if (request.waits && nodes.isClosed && error.isRefused(Code.CANCELLED)) ClosedException() else error
            onEnd?.invoke(ended)
            throw ended
        } catch (error: RuntimeException) { // a cancellation, or a wrong argument
            onEnd?.invoke(error)
            throw error
        }
    }

    private suspend fun attempt(request: Request, how: How): Any? {
        val tries = Attempts(this, how)
        return tries.run { node, conn ->
            checkKnown(conn, request.kind, request.body)
            when {
                request.kind != Kind.RUN -> conn.ask(request)
                tries.spread -> askScript(node, conn, behindSeen(request, conn))
                else -> askScript(node, conn, request)
            }
        }
    }

    private suspend fun askScript(node: StoreNode, conn: Connection, request: Request): Answer {
        val asked = seen.mark()
        val answer = conn.ask(request) as Answer
        if (answer.moment != null && nodes.areSeveral) synchronized(makers) { makers[answer.moment] = node }
        val isHome = nodes.home === node
        if (isHome && node.takesChanges != false) {
            seen.onAnswer(answer.position, asked)
        } else if (!isHome && seen.isForeign(answer.store)) {
            node.isForeign = true
            throw broken("${node.address} is a node of another store, ${answer.store}: it is not read any more")
        } else {
            seen.onAnswer(answer.position)
        }
        return answer
    }

    /** Returns the request of a read for a node that may be behind. */
    private fun behindSeen(request: Request, conn: Connection): Request {
        val after = seen.after
        if (after == 0L || conn.welcome.minor < MINOR_OF_AFTER) return request
        val given = request.body?.get("after") as? Long ?: 0
        return Request(request.kind, request.body?.with("after", maxOf(given, after)), request.timeout, request.waits, request.stop)
    }

    /** Asks for an operation that may change something. */
    internal suspend fun change(request: Request, how: How = How()): Row {
        val found =
            try {
                ask(request, how).asBody()
            } catch (error: OutcomeUnknownException) {
                seen.miss()
                throw error
            } catch (error: CancellationException) {
                seen.miss()
                throw error
            }
        val seq = found["seq"] as? Long
        if (seq != null) {
            seen.reach(seq)
        } else if (request.kind == Kind.VAULT || (nodes.home?.conn?.welcome?.minor ?: 0) < MINOR_OF_SEQUENCES) {
            seen.miss()
        }
        return found
    }

    internal val readsAnywhere: Boolean get() = reads == Reads.ANY && nodes.areSeveral && seen.isWhole
}

/** A handle on one database of a client. */
public class Database internal constructor(internal val client: Client, public val ns: String, public val db: String) : Runner() {
    override suspend fun script(text: String, params: Row, options: ScriptOptions): Answer =
        client.script(text, params, options.copy(ns = ns, db = db))

    /** Returns a transaction to add statements to. It sends nothing before its `run`. */
    public fun transaction(): Transaction = Transaction(this)

    /**
     * Takes a snapshot of the store to read in. The caller closes it.
     *
     * @param keep time for which the node keeps it after each read, at most 10 minutes
     */
    public suspend fun moment(keep: Duration = 1.minutes): Moment {
        val answer = script("", emptyMap(), ScriptOptions(moment = "new", keep = positive(keep, "keep"), isRepeatable = true))
        return Moment(this, answer.moment ?: throw broken("the node names no moment"), keep, answer.position)
    }

    /** Returns a handle on the keys of a cache space. */
    public fun cache(space: String): Cache = Cache(this, checkName(space))

    /** Returns a handle on a topic. */
    public fun topic(name: String): Topic = Topic(this, name)

    /**
     * Returns a watch, which follows the changes of a table.
     *
     * @param from position to begin behind: of an answer, or of another watch. The newest commit by default
     * @param where a condition on the record. One that begins to meet it is a create, one that ceases to is a delete
     * @param actions limits the watch to some actions
     * @param before add the record before the commit to each change
     */
    public fun watch(
        table: String,
        from: Position? = null,
        where: String? = null,
        actions: Set<Action>? = null,
        before: Boolean = false,
    ): Watch = Watch(this, WatchOptions(checkName(table), where, actions, before), from)

    /**
     * Reads a table in full and returns a copy that is kept in step until it is closed.
     *
     * @param where limits the mirror to records that meet a condition
     * @param page rows in one request while the table is read in full
     * @param onCopy called each time the table was read in full
     */
    public suspend fun mirror(
        table: String,
        where: String? = null,
        page: Int = ROWS,
        onCopy: ((Copied) -> Unit)? = null,
    ): Mirror = Mirror(this, table, where, page, onCopy).also { it.open() }

    /** Returns a handle on a vault. */
    public fun vault(name: String): Vault = Vault(this, name)

    override fun toString(): String = "$ns.$db of $client"
}

private const val ROWS = 1000

/** Refuses what the node is too old for. */
internal fun checkKnown(conn: Connection, kind: Kind, body: Body?) {
    when (kind) {
        Kind.RUN -> {
            if (body?.get("after") != null) checkMinor(conn, MINOR_OF_AFTER, "requests that come after a sequence")
            if (body?.get("current") != null) checkMinor(conn, MINOR_OF_SEQUENCES, "linearizable reads")
        }

        Kind.WATCH -> checkMinor(conn, MINOR_OF_FEEDS, "feeds")

        Kind.VAULT -> checkMinor(conn, MINOR_OF_VAULTS, "vaults")

        else -> Unit
    }
}

private const val VERSION_NOT_SUPPORTED = 505

internal fun checkMinor(conn: Connection, minor: Int, what: String) {
    val welcome = conn.welcome
    if (welcome.minor >= minor) return
    val text =
        "node ${welcome.node} of version ${welcome.version} speaks minor ${welcome.minor} of the wire, which has no $what: they came with $minor"
    throw RefusedException(RefusalFields(Code.VERSION_NOT_SUPPORTED, text, VERSION_NOT_SUPPORTED, retry = false))
}

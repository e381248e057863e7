package storeclient

import kotlinx.coroutines.Job
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlin.time.TimeMark
import kotlin.time.TimeSource

/** Connections that may end under one request before it is given up. */
private const val BREAKS_MOST = 8

/** Conditions of one request. */
internal class How(
    val isRepeatable: Boolean = false,
    /** Any node may be asked that shows all that this client has seen. */
    val spread: Boolean = false,
    /** Node to be asked while its connection stands. */
    val at: StoreNode? = null,
    /** Ends the request: it is not asked again then. */
    val stop: Job? = null,
)

/** Attempts of one request: again is asked only what did not happen, or does no harm twice. */
internal class Attempts(private val client: Client, private val how: How) {
    /** True while any node may be asked. */
    var spread = how.spread
        private set

    private val nodes = client.nodes
    private val pause = retryBackoff()
    private var signedInAgain = false
    private var turnedAway: TimeMark? = null
    private var breaks = 0
    private val refused = HashSet<StoreNode>()
    private var isCluster = false
    private var searching: TimeMark? = null

    private suspend fun next(): StoreNode =
        when {
            how.at?.usable != null -> how.at
            spread -> nodes.near()
            else -> nodes.findHome()
        }

    /** Works on a usable connection, and on another one where the request never began. */
    suspend fun <T> run(work: suspend (StoreNode, Connection) -> T): T {
        while (true) {
            currentCoroutineContext().ensureActive()
            val node = next()
            val conn = node.usable
            if (conn == null) {
                onNotSent(node) // it has ended in this moment
                continue
            }
            val session = conn.session
            try {
                return work(node, conn)
            } catch (_: NotSent) {
                onNotSent(node)
            } catch (error: StoreException) {
                if (!isAskedAgain(error, node, conn, session)) throw error
            }
        }
    }

    private suspend fun isAskedAgain(error: StoreException, node: StoreNode, conn: Connection, session: Int): Boolean {
        if (error !is Refusal) return error is OutcomeUnknownException && how.isRepeatable && !conn.isUsable && isAskedBehindBreak()
        return when {
            error.committed != 0L -> false

            error is OutcomeUnknownException -> how.isRepeatable && isAskedElsewhere(error, node)

            error.code == Code.SESSION_ENDED && nodes.credential.user != null && !signedInAgain -> {
                signedInAgain = true
                conn.signInAgain(nodes.credential, session)
                true
            }

            error.code == Code.DRAINING && conn.isLeaving -> isAskedBehindBreak()

            spread && nodes.home !== node -> isAskedAtHome(error, node)

            else -> (error.code == Code.DRAINING || error.code == Code.NOT_WRITABLE) && isAskedElsewhere(error, node)
        }
    }

    /** The connection had ended before anything was written. One such end says nothing. */
    private suspend fun onNotSent(node: StoreNode) {
        val since = turnedAway
        if (since == null) {
            turnedAway = TimeSource.Monotonic.markNow()
        } else if (since.elapsedNow() < nodes.connectTimeout) {
            pause.pause(nodes.closing)
        } else {
            val said = "${node.address} ended each connection for ${nodes.connectTimeout} before anything was sent"
            throw unreached(said, node.conn?.cause)
        }
    }

    /** Asks at once after the first break. With every other it is likelier that the request causes it. */
    private suspend fun isAskedBehindBreak(): Boolean {
        breaks++
        if (breaks > BREAKS_MOST) return false
        if (breaks > 1) pause.pause(how.stop ?: nodes.closing)
        return true
    }

    /** A read that was refused elsewhere is home's to answer, unless it would end there likewise. */
    private fun isAskedAtHome(error: Refusal, node: StoreNode): Boolean {
        if (error.isBehind() || error.retry) node.rest()
        if (error.code == Code.CANCELLED || error.code == Code.ANSWER_TOO_LARGE) return false
        if (error.code == Code.STATEMENT_TIMEOUT && !error.isBehind()) return false
        spread = false
        return true
    }

    /** Looks for the node that takes changes. A cluster may have none for a moment. */
    private suspend fun isAskedElsewhere(error: Refusal, node: StoreNode): Boolean {
        if (how.stop?.isStopped == true || !nodes.areSeveral) return false
        val since = searching ?: TimeSource.Monotonic.markNow().also { searching = it }
        isCluster = isCluster || "leader" in error.detail
        nodes.onRefusedBy(node, error.detail["leader"])
        if (refused.add(node)) return true
        if (!isCluster || since.elapsedNow() >= nodes.connectTimeout) return false
        refused.clear()
        pause.pause(how.stop ?: nodes.closing)
        return true
    }
}

package storeclient

/** Base of the errors of this client, beside those of wrong arguments: these are an [IllegalArgumentException]. */
public sealed class StoreException(message: String, cause: Throwable?) : RuntimeException(message, cause)

/** A refusal of the node, with all of its fields. [Code] has the known codes. */
public interface Refusal {
    /** Stable name of the refusal. A newer node may send others than [Code] has. */
    public val code: String

    /** The node's message, without code and place. */
    public val text: String

    /** HTTP status of the same error. */
    public val status: Int

    /** True if the same request may succeed later. */
    public val retry: Boolean

    /** Facts for programs, with keys that are stable for a code. */
    public val detail: Row

    /** Name of the request in the node's log. */
    public val request: String?

    /** Number of the refused statement in the script, from 1. */
    public val statement: Int?

    /** Line of the refusal in the script, from 1. */
    public val line: Int?

    /** Column of the refusal in its line, from 1. */
    public val column: Int?

    /** Results of the statements before the refused one that were kept. */
    public val results: List<Result>

    /** Newest sequence that the script committed before it was refused; 0: it changed nothing. */
    public val committed: Long get() = detail["committed"] as? Long ?: 0
}

internal data class RefusalFields(
    override val code: String,
    override val text: String,
    override val status: Int,
    override val retry: Boolean,
    override val detail: Row = emptyMap(),
    override val request: String? = null,
    override val statement: Int? = null,
    override val line: Int? = null,
    override val column: Int? = null,
    override val results: List<Result> = emptyList(),
) : Refusal {
    val message: String get() {
        val place = if (line == null) "" else " (statement $statement, line $line, column $column)"
        return "$code: ${if (line == null) text else text.substringBefore('\n')}$place"
    }

    fun toException(cause: Throwable? = null): StoreException =
        if (code == Code.UNKNOWN_OUTCOME) UnknownOutcomeException(this) else RefusedException(this, cause)
}

/** The node refused the request. [code] says why. */
public class RefusedException internal constructor(internal val fields: RefusalFields, cause: Throwable? = null) :
    StoreException(fields.message, cause),
    Refusal by fields

/** A request was sent and its answer will not come: it may have been done in full, in part or not at all. */
public open class OutcomeUnknownException internal constructor(cause: Throwable?, message: String) :
    StoreException(message, cause)

/** The node's own `UnknownOutcome`: its log failed under the commit. */
public class UnknownOutcomeException internal constructor(internal val fields: RefusalFields) :
    OutcomeUnknownException(null, fields.message),
    Refusal by fields

/** No connection could be made in time. Nothing was sent. */
public class UnreachableException internal constructor(cause: Throwable?, message: String) :
    StoreException(message, cause)

/** The peer does not speak the wire protocol. */
public class ProtocolBrokenException internal constructor(cause: Throwable?, message: String) :
    StoreException(message, cause)

/** The client, or the handle, was closed. */
public class ClosedException internal constructor(message: String = "the client has been closed") :
    StoreException(message, null)

/** Returns true if the error is a refusal of that code. */
public fun Throwable.isRefused(code: String): Boolean = this is Refusal && this.code == code

// Coroutines copy exceptions that have a constructor of a message and a cause. These have none: a copy has another cause.

internal fun unsure(message: String, cause: Throwable? = null): OutcomeUnknownException = OutcomeUnknownException(cause, message)

internal fun unreached(message: String, cause: Throwable? = null): UnreachableException = UnreachableException(cause, message)

internal fun broken(message: String, cause: Throwable? = null): ProtocolBrokenException = ProtocolBrokenException(cause, message)

/** Ends a request of which nothing was written: it is sent on another connection. */
internal class NotSent : RuntimeException("nothing was written", null, false, false)

/** The certificate of the peer is not trusted, or is of another host. */
internal class UntrustedException(cause: Throwable) : RuntimeException(cause.message, cause)

/** True if a node did not show in time what the request was to come after. */
internal fun Refusal.isBehind(): Boolean = code == Code.STATEMENT_TIMEOUT && "after" in detail

/** True if the error goes away with time: a node that is away, stops, is full, only reads, or is behind. */
internal fun Throwable.isOutage(): Boolean =
    when (this) {
        is OutcomeUnknownException, is UnreachableException -> true
        is Refusal -> retry || isBehind() || code == Code.NOT_WRITABLE
        else -> false
    }

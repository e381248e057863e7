package storeclient

import java.time.Duration as JavaDuration

/**
 * Result of one statement.
 *
 * @property value rows of a SELECT and of statements that change records, or another value
 * @property kind `rows`, `value`, `none` or `info`
 * @property rows number of rows in [value]
 * @property took time that the statement took
 * @property changed number of records created, changed or deleted; null of a statement that writes no records
 */
public class Result internal constructor(
    public val value: Any?,
    public val kind: String,
    public val rows: Int,
    public val took: JavaDuration,
    public val changed: Long?,
) {
    override fun toString(): String = "Result(kind=$kind, rows=$rows, changed=$changed, value=$value)"
}

/**
 * Results of a script, one for each statement.
 *
 * @property seq sequence of the script's last commit, or the one that it read at
 * @property store history of [seq], with [epoch]
 * @property epoch epoch of [seq]
 */
public class Answer internal constructor(
    public val results: List<Result>,
    public val seq: Long,
    public val store: String?,
    public val epoch: Long?,
    internal val moment: String? = null,
) {
    /** Value of the last statement; null of an empty script. */
    public val value: Any? get() = results.lastOrNull()?.value

    /** Rows of the last statement, which is a SELECT or one that changes records. */
    public val rows: List<Row> get() {
        val found = value
        check(found is List<*> && found.all { it is Map<*, *> }) { "the last statement has no rows, but ${kindOf(found)}" }
        @Suppress("UNCHECKED_CAST")
        return found as List<Row>
    }

    /** Position behind this answer, to follow a table from. */
    public val position: Position get() = Position(seq, store, epoch)

    internal fun withResults(results: List<Result>): Answer = Answer(results, seq, store, epoch, moment)

    override fun toString(): String = "Answer(seq=$seq, results=$results)"
}

/** Returns a field of a body that must be there. */
internal inline fun <reified T : Any> Row.needed(name: String): T = this[name] as? T ?: throw misfit(name, this[name], T::class.simpleName)

/** Returns a field of a body that may be absent. */
internal inline fun <reified T : Any> Row.optional(name: String): T? = if (this[name] == null) null else needed<T>(name)

internal fun Row.neededInt(name: String): Int = needed<Long>(name).let { if (it in 0..Int.MAX_VALUE) it.toInt() else throw misfit(name, it, "Int") }

private fun Row.optionalInt(name: String): Int? = if (this[name] == null) null else neededInt(name)

internal fun Row.neededRow(name: String): Row = asRow(this[name]) ?: throw misfit(name, this[name], "Map")

internal fun Row.strings(name: String): List<String> {
    val found = needed<List<Any?>>(name)
    if (!found.all { it is String }) throw misfit(name, found, "List<String>")
    @Suppress("UNCHECKED_CAST")
    return found as List<String>
}

@Suppress("UNCHECKED_CAST")
internal fun asRow(value: Any?): Row? = value as? Row

/** Returns a reply that is a body. */
internal fun Any?.asBody(): Row = asRow(this) ?: emptyMap()

internal fun misfit(name: String, found: Any?, wanted: String?): ProtocolBrokenException =
    broken("the node sent ${if (found == null) "no $name" else "$name as ${kindOf(found)}"}, not as $wanted")

private fun readResults(found: Any?): List<Result> {
    if (found == null) return emptyList()
    if (found !is List<*>) throw misfit("results", found, "List")
    return found.map {
        val one = asRow(it)
        if (one == null || "value" !in one) throw misfit("a result", it, "Map with a value")
        Result(one["value"], one.needed("kind"), one.neededInt("rows"), one.needed("took"), one.optional("changed"))
    }
}

internal fun readAnswer(body: Row): Answer =
    Answer(
        readResults(body["results"]),
        body.needed("seq"),
        body.optional("store"),
        body.optional("epoch"),
        body.optional("moment"),
    )

/** Returns the error of a refusal. */
internal fun readError(body: Row): StoreException {
    val error = body.neededRow("error")
    return RefusalFields(
        code = error.needed("code"),
        text = error.needed("message"),
        status = error.neededInt("status"),
        retry = error.needed("retry"),
        detail = if (error["detail"] == null) emptyMap() else error.neededRow("detail"),
        request = error.optional("request"),
        statement = error.optionalInt("statement"),
        line = error.optionalInt("line"),
        column = error.optionalInt("column"),
        results = readResults(body["results"]),
    ).toException()
}

/**
 * State of a node, and of the signed-in user.
 *
 * @property version version of the node
 * @property node id of the node
 * @property minor minor of the wire protocol that both sides speak
 * @property limits limits of frames
 * @property user `name`, `role` and `space`; null without a sign-in
 * @property writable true if the node takes changes, and of nodes before minor 7
 * @property leader addresses of the node that takes changes if this one does not
 */
public class Welcome internal constructor(
    public val version: String,
    public val node: String,
    public val minor: Int,
    public val limits: Row,
    public val user: Row?,
    public val writable: Boolean,
    public val leader: List<String>,
)

internal fun readWelcome(body: Row): Welcome =
    Welcome(
        version = body.needed("version"),
        node = body.needed("node"),
        minor = body.neededInt("minor"),
        limits = body.neededRow("limits"),
        user = if (body["user"] == null) null else body.neededRow("user"),
        writable = body.optional("writable") ?: true,
        leader = if (body["leader"] == null) emptyList() else body.strings("leader"),
    )

/** Returns the results between what a client puts before and behind a script. */
internal fun within(results: List<Result>, before: Int): List<Result> {
    val found = results.drop(before)
    // A RETURN in it has ended it before its COMMIT was answered.
    return if (found.lastOrNull()?.kind == "none") found.dropLast(1) else found
}

package storeclient

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlin.time.Duration

/** Options of a script inside of the client. */
internal data class ScriptOptions(
    val ns: String? = null,
    val db: String? = null,
    val timeout: Duration? = null,
    val reason: String? = null,
    val isRepeatable: Boolean = false,
    val record: Boolean = false,
    val after: Long? = null,
    val current: Boolean = false,
    val moment: String? = null,
    val keep: Duration? = null,
    val waits: Boolean = false,
)

private const val ROWS = 1000

/** Runs scripts: a [Client], a [Database] or a [Moment]. */
public abstract class Runner internal constructor() {
    internal abstract suspend fun script(text: String, params: Row, options: ScriptOptions): Answer

    /**
     * Runs a script and returns the results of all its statements. A script that is one `BEGIN … COMMIT` is a
     * transaction.
     *
     * @param params values of `$name` in the script: they are bound, never part of its text
     * @param timeout limit of the script at the node, in the place of the client's
     * @param reason kept with the statements in the statement log
     * @param repeatable running the script twice does no harm: it is sent again after a broken connection
     * @param record keep a script that only reads in the statement log too
     * @param after sequence that the node has to show, such as the `seq` of another client's answer
     * @param current see every commit of any node made before: a linearizable read
     * @param ns namespace of a client's script
     * @param db database of a client's script
     */
    public suspend fun run(
        script: String,
        params: Map<String, Any?> = emptyMap(),
        timeout: Duration? = null,
        reason: String? = null,
        repeatable: Boolean = false,
        record: Boolean = false,
        after: Long? = null,
        current: Boolean = false,
        ns: String? = null,
        db: String? = null,
    ): Answer = script(script, params, ScriptOptions(ns, db, timeout, reason, repeatable, record, after, current))

    /** Runs a script and returns the value of its last statement. The arguments are those of [run]. */
    public suspend fun query(
        script: String,
        params: Map<String, Any?> = emptyMap(),
        timeout: Duration? = null,
        reason: String? = null,
        repeatable: Boolean = false,
        record: Boolean = false,
        after: Long? = null,
        current: Boolean = false,
        ns: String? = null,
        db: String? = null,
    ): Any? = run(script, params, timeout, reason, repeatable, record, after, current, ns, db).value

    /**
     * Returns the rows of a SELECT from one table in the order of their ids, read page by page. The fields must
     * include `id`, and the text has no VALUE, SPLIT, GROUP, ORDER, LIMIT, START, FETCH or TIMEOUT. Each page shows
     * what is committed when it is read; of a moment all show the same.
     *
     * @param page rows in one request
     */
    public fun rows(select: String, params: Map<String, Any?> = emptyMap(), page: Int = ROWS): Flow<Row> {
        val pages = Pages(select, params, page)
        return flow {
            var after: Any? = null
            while (true) {
                val (text, given) = pages.script(after)
                val found = script(text, given, ScriptOptions(isRepeatable = true)).value as? List<*>
                val rows = found?.map { asRow(it) ?: throw misfit("a row", it, "Map") }
                    ?: throw broken("the node answered a SELECT with no rows")
                if (rows.isNotEmpty()) {
                    after = rows.last()["id"] as? RecordId
                        ?: throw ValueException("", "a SELECT that is read page by page has `id` among its fields")
                }
                rows.forEach { emit(it) }
                if (rows.size < page) return@flow
            }
        }
    }
}

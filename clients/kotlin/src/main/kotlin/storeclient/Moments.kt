package storeclient

import kotlin.time.Duration

/**
 * A snapshot of the store to read in. Reads are refused with [Code.UNKNOWN] once the node has restarted, a user or
 * grant has changed, or nothing has read for as long as the moment is kept.
 *
 * @property position position of the moment, to follow a table from
 */
public class Moment internal constructor(
    private val db: Database,
    private val name: String,
    private val keep: Duration,
    public val position: Position,
) : Runner(), Closeable {
    override suspend fun script(text: String, params: Row, options: ScriptOptions): Answer =
        db.script(text, params, options.copy(moment = name, keep = keep, isRepeatable = true))

    /** Ends the moment. Where the node cannot be reached it ends by itself. */
    override suspend fun close() {
        try {
            db.script("", emptyMap(), ScriptOptions(moment = name, keep = Duration.ZERO, isRepeatable = true))
        } catch (error: RefusedException) {
            if (!error.isRefused(Code.UNKNOWN)) throw error
        }
    }
}

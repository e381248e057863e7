package storeclient

import kotlin.time.Duration

private const val SHOWN = 40

/** Statements that commit together, in one script. */
public class Transaction internal constructor(private val db: Database) {
    private val text = StringBuilder()
    private val params = HashMap<String, Any?>()

    /** Adds one or more statements. Equal names of parameters in different calls do not collide. */
    public fun add(statements: String, params: Map<String, Any?> = emptyMap()): Transaction {
        if (hasTransactionWords(statements)) {
            throw ValueException("", "a transaction has its own BEGIN and COMMIT: '${statements.take(SHOWN)}'")
        }
        val names = HashMap<String, String>()
        for ((name, value) in params) {
            val own = generateSequence(0) { it + 1 }.map { if (it == 0) name else "${name}__$it" }.first { it !in this.params }
            names[name] = own
            this.params[own] = value
        }
        text.append(renamed(statements, names)).append("\n;\n") // on a line of its own: they may end in a comment
        return this
    }

    /** Commits all statements or none. The answer has the results of the added statements. */
    public suspend fun run(
        timeout: Duration? = null,
        reason: String? = null,
        repeatable: Boolean = false,
        current: Boolean = false,
    ): Answer {
        val answer = db.run("BEGIN;\n${text}COMMIT", params, timeout, reason, repeatable, current = current)
        return answer.withResults(within(answer.results, 1))
    }
}

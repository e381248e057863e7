package storeclient

private const val AFTER = "storeclient_after"
private const val LIMIT = "storeclient_rows"

private const val OPENING = 2
private const val CLOSING = 3
private const val END = 4
private const val WORD = 5
private const val SHOWN = 40

/** Pieces of a text: skipped (1), an opening (2) and a closing (3) bracket, an end (4), a word (5). */
private val PIECES =
    Regex(
        "('(?:[^'\\\\]|\\\\.)*+'|\"(?:[^\"\\\\]|\\\\.)*+\"|`(?:[^`\\\\]|\\\\.)*+`|--[^\\n]*|//[^\\n]*|#[^\\n]*|/\\*.*?\\*/|" +
            "\\$\\w+|[\\w.:]*[.:]\\w*)|([\\[({])|([\\])}])|(;)|([A-Za-z_]\\w*)",
        RegexOption.DOT_MATCHES_ALL,
    )
private val GOES_ON = Regex("\\s*(?:$|[=!<>~+\\-*/%),.?]|(?:IN|NOT|CONTAINS|AND|OR)\\b)", RegexOption.IGNORE_CASE)
private val CLAUSES = setOf("SPLIT", "GROUP", "HAVING", "ORDER", "LIMIT", "START", "FETCH", "TIMEOUT")

private class Word(val text: String, val range: IntRange)

/** Returns the words of a text in capitals, those outside of strings, comments and brackets. */
private fun words(text: String): List<Word> {
    val found = ArrayList<Word>()
    var depth = 0
    for (piece in PIECES.findAll(text)) {
        val groups = piece.groups
        when {
            groups[OPENING] != null -> depth++
            groups[CLOSING] != null -> depth--
            depth > 0 -> Unit
            groups[END] != null -> throw ValueException("", "one SELECT is read page by page, without a `;`")
            groups[WORD] != null -> found.add(Word(piece.value.uppercase(), piece.range))
        }
    }
    return found
}

/** Returns what stands before WHERE, and the condition. */
private fun splitSelect(text: String): Pair<String, String> {
    val found = words(text)
    if (found.firstOrNull()?.text != "SELECT") {
        throw ValueException("", "what is read page by page is a SELECT, not '${text.take(SHOWN)}'")
    }
    val from = found.indexOfFirst { it.text == "FROM" }
    if (from < 0) throw ValueException("", "the SELECT has no FROM")
    for ((n, one) in found.withIndex()) {
        if (isClause(one, n, from, text)) {
            throw ValueException("", "${one.text} has no place in a SELECT that is read page by page: all of its rows come, in the order of their ids")
        }
    }
    val where = found.drop(from + 1).find { it.text == "WHERE" } ?: return text to ""
    return text.substring(0, where.range.first) to text.substring(where.range.last + 1)
}

private fun isClause(word: Word, n: Int, from: Int, text: String): Boolean =
    when (word.text) {
        in CLAUSES -> n >= from + 2 && GOES_ON.matchAt(text, word.range.last + 1) == null

        // else it is a field
        "VALUE", "DISTINCT" -> n == 1

        "ONLY" -> n == from + 1

        else -> false
    }

/** Scripts of the pages of one SELECT. Its text is split at words and not parsed. */
internal class Pages(select: String, private val params: Row, private val page: Int) {
    private val head: String
    private val where: String

    init {
        if (page < 1) throw ValueException("page", "a page has at least one row, not $page")
        for (name in listOf(AFTER, LIMIT)) {
            if (name in params) throw ValueException("$$name", "the client names its own parameter so")
        }
        val (before, condition) = splitSelect(select)
        head = before
        where = condition
    }

    /** Returns the script of the page behind an id, and its parameters. */
    fun script(after: Any?): Pair<String, Row> {
        val given = params + (LIMIT to page) + if (after == null) emptyMap() else mapOf(AFTER to after)
        val conditions = ArrayList<String>()
        if (after != null) conditions.add("id > $$AFTER")
        if (where.isNotEmpty()) conditions.add("($where\n)") // on a line of its own: the text may end in a comment
        val condition = if (conditions.isEmpty()) "" else " WHERE ${conditions.joinToString(" AND ")}"
        return "$head\n$condition ORDER BY id LIMIT $$LIMIT" to given
    }
}

/** True if a text has BEGIN or COMMIT as a word of its own. */
internal fun hasTransactionWords(text: String): Boolean =
    PIECES.findAll(text).any { it.groups[WORD] != null && (it.value.equals("BEGIN", true) || it.value.equals("COMMIT", true)) }

/** Returns a text with its parameters under other names. What stands in strings and comments stays. */
internal fun renamed(text: String, names: Map<String, String>): String =
    PIECES.replace(text) { piece ->
        val own = if (piece.value.startsWith("$")) names[piece.value.drop(1)] else null
        if (own == null) piece.value else "$$own"
    }

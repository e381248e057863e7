package storeclient

/**
 * Queries of full-text search as values, for parameters of `@@` and `search::matches`.
 *
 * ```
 * db.query("SELECT VALUE id FROM article WHERE body @@ \$query", mapOf("query" to Search.any("tin", Search.phrase("copper ore", 2))))
 * ```
 *
 * A query is a string, a list of literal words, or the result of a function here. The node checks it.
 */
public object Search {
    /** Returns a query that any of some queries fulfils. */
    @JvmStatic
    public fun any(vararg queries: Any): Map<String, Any> = mapOf("any" to queries.asList())

    /** Returns a query that needs all of some queries; those of [not] exclude. */
    @JvmStatic
    public fun all(vararg queries: Any): Map<String, Any> = mapOf("all" to queries.asList())

    /** Returns a query whose matches [all] excludes. */
    @JvmStatic
    public fun not(query: Any): Map<String, Any> = mapOf("not" to query)

    /** Returns a query for words in this order, with at most [slop] other words between them. */
    @JvmStatic
    @JvmOverloads
    public fun phrase(text: String, slop: Int = 0): Map<String, Any> = mapOf("phrase" to listOf(text, slop))

    /** Returns a query for words that begin so; of several words the last one is a beginning. */
    @JvmStatic
    public fun prefix(text: String): Map<String, Any> = mapOf("prefix" to text)

    /** Returns a query for words with at most so many edits, 0 to 2. */
    @JvmStatic
    @JvmOverloads
    public fun fuzzy(text: String, edits: Int = 1): Map<String, Any> = mapOf("fuzzy" to listOf(text, edits))

    /** Returns a query whose share of a score is multiplied. */
    @JvmStatic
    public fun boost(query: Any, by: Double): Map<String, Any> = mapOf("boost" to listOf(query, by))
}

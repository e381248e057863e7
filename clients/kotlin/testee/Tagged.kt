package storeclient.testee

import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.booleanOrNull
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import storeclient.None
import storeclient.RecordId
import storeclient.Search
import java.math.BigDecimal
import java.math.BigInteger
import java.time.Instant
import java.time.LocalDateTime
import java.time.ZoneOffset
import java.util.Base64
import java.util.UUID
import java.time.Duration as JavaDuration

private const val MICROS = 1_000_000L
private const val NANOS = 1_000L
private const val DEEP = 2000
private const val LATE = 10_000

private class Opaque

private val READERS: Map<String, (JsonElement) -> Any?> =
    mapOf(
        "\$int" to { it.text.toLong() },
        "\$float" to { it.text.toDouble() },
        "\$none" to { None },
        "\$dt" to { Instant.parse(it.text) },
        "\$dec" to { BigDecimal(it.text) },
        "\$rec" to { RecordId(it.jsonArray[0].text, readTagged(it.jsonArray[1])!!) },
        "\$dur" to { JavaDuration.ofSeconds(Math.floorDiv(it.text.toLong(), MICROS), Math.floorMod(it.text.toLong(), MICROS) * NANOS) },
        "\$bytes" to { Base64.getDecoder().decode(it.text) },
        "\$uuid" to { UUID.fromString(it.text) },
        "\$obj" to { it.jsonObject.mapValues { (_, one) -> readTagged(one) } },
        "\$bad" to { BAD.getValue(it.text)() },
        "\$search" to { queryOf(it.jsonArray[0].text, it.jsonArray.drop(1).map(::readTagged)) },
        "\$vector" to { texts -> texts.jsonArray.map { it.text.toFloat() }.toFloatArray() },
    )

private val BAD: Map<String, () -> Any> =
    mapOf(
        "nan" to { Double.NaN },
        "infinity" to { Double.POSITIVE_INFINITY },
        "int" to { BigInteger.ONE.shiftLeft(Long.SIZE_BITS - 1) },
        "naive" to { LocalDateTime.of(2026, 1, 2, 0, 0) },
        "object" to { Opaque() },
        "year" to { LocalDateTime.of(LATE, 1, 1, 0, 0).atOffset(ZoneOffset.UTC) },
        "deep" to { generateSequence<Any>(emptyList<Any>()) { listOf(it) }.elementAt(DEEP) },
    )

/** Returns the query that a function of the client makes. */
private fun queryOf(name: String, given: List<Any?>): Map<String, Any> {
    val queries = given.filterNotNull().toTypedArray()
    return when (name) {
        "any" -> Search.any(*queries)
        "all" -> Search.all(*queries)
        "not" -> Search.not(queries[0])
        "phrase" -> Search.phrase(queries[0] as String, (queries[1] as Long).toInt())
        "prefix" -> Search.prefix(queries[0] as String)
        "fuzzy" -> Search.fuzzy(queries[0] as String, (queries[1] as Long).toInt())
        "boost" -> Search.boost(queries[0], queries[1] as Double)
        else -> error("no query: $name")
    }
}

private val JsonElement.text: String get() = jsonPrimitive.content

/** Returns the value of a tagged one. */
internal fun readTagged(given: JsonElement): Any? =
    when (given) {
        JsonNull -> null

        is JsonArray -> given.map(::readTagged)

        is JsonPrimitive -> given.booleanOrNull?.takeIf { !given.isString } ?: given.content

        is JsonObject -> {
            val (tag, inner) = given.entries.singleOrNull()?.toPair() ?: ("" to JsonNull)
            val reader = READERS[tag]
            if (reader == null) given.mapValues { (_, one) -> readTagged(one) } else reader(inner)
        }
    }

/** Returns the tagged form of a value. */
internal fun writeTagged(value: Any?): JsonElement =
    when (value) {
        null, Unit -> JsonNull

        is Boolean -> JsonPrimitive(value)

        is String -> JsonPrimitive(value)

        is Int, is Long -> tagged("\$int", value.toString())

        is Double -> tagged("\$float", value.toString())

        is List<*> -> JsonArray(value.map(::writeTagged))

        is Map<*, *> -> {
            val found = JsonObject(value.entries.associate { (name, one) -> name as String to writeTagged(one) })
            if (found.size == 1 && found.keys.first().startsWith("$")) JsonObject(mapOf("\$obj" to found)) else found
        }

        None -> JsonObject(mapOf("\$none" to JsonPrimitive(true)))

        is Instant -> tagged("\$dt", value.toString())

        is BigDecimal -> tagged("\$dec", value.toString())

        is RecordId -> JsonObject(mapOf("\$rec" to JsonArray(listOf(JsonPrimitive(value.table), writeTagged(value.id)))))

        is JavaDuration -> tagged("\$dur", (BigInteger.valueOf(value.seconds) * BigInteger.valueOf(MICROS) + BigInteger.valueOf(value.nano / NANOS)).toString())

        is ByteArray -> tagged("\$bytes", Base64.getEncoder().encodeToString(value))

        is UUID -> tagged("\$uuid", value.toString())

        else -> throw IllegalStateException("no value: $value")
    }

private fun tagged(tag: String, text: String) = JsonObject(mapOf(tag to JsonPrimitive(text)))

package storeclient

import java.math.BigDecimal
import java.math.BigInteger
import java.time.Instant
import java.time.OffsetDateTime
import java.time.ZonedDateTime
import java.util.Date
import java.util.UUID
import kotlin.time.Duration
import kotlin.time.toJavaDuration
import java.time.Duration as JavaDuration

/** An object of the language, or a record, by the names of its fields. */
public typealias Row = Map<String, Any?>

/** The value NONE, an absent value; `null` is null. */
public data object None {
    override fun toString(): String = "NONE"
}

/**
 * The id of a record.
 *
 * @property table name of its table
 * @property id id within the table: a `String`, a `Long`, a [UUID], or a `List` of these
 */
public class RecordId(public val table: String, id: Any) {
    public val id: Any = keyOf(id)

    override fun equals(other: Any?): Boolean = other is RecordId && table == other.table && id == other.id

    override fun hashCode(): Int = 31 * table.hashCode() + id.hashCode()

    /** Returns the form of the language, such as `person:1` or ``person:`any text` ``. */
    override fun toString(): String = "${bare(table)}:${if (id is String) bare(id) else keyText(id)}"

    private companion object {
        fun keyOf(id: Any): Any =
            when (id) {
                is String, is Long, is UUID -> id

                is Int, is Short, is Byte -> (id as Number).toLong()

                is List<*> -> id.map { keyOf(requireNotNull(it) { "the id of a record has no nulls" }) }

                else -> throw IllegalArgumentException(
                    "the id of a record is a string, an int, a UUID or a list of these, not ${kindOf(id)}",
                )
            }
    }
}

private val BARE = Regex("[A-Za-z_][A-Za-z0-9_]*")
private val BACK_QUOTED = Regex("[\\\\`]")
private val ESCAPES =
    mapOf('\n' to "\\n", '\t' to "\\t", '\r' to "\\r", '\\' to "\\\\", '\'' to "\\'", '\u0000' to "\\u{0}")

private fun bare(name: String): String =
    if (BARE.matches(name)) name else "`${BACK_QUOTED.replace(name) { "\\" + it.value }}`"

private fun keyText(key: Any?): String =
    when (key) {
        is String -> key.map { ESCAPES[it] ?: it.toString() }.joinToString("", "'", "'")
        is UUID -> "u'$key'"
        is List<*> -> key.joinToString(", ", "[", "]") { keyText(it) }
        else -> key.toString()
    }

/**
 * An argument that is no value of the language, or that an operation does not take. Nothing was sent.
 *
 * @property path location of the value, such as `$item.sizes[2]`; empty if it is the whole argument
 * @property reason message without the location
 */
public class ValueException(public val path: String, public val reason: String) :
    IllegalArgumentException(if (path.isEmpty()) reason else "$path: $reason") {
    internal fun under(place: String): ValueException = ValueException(place + path, reason)
}

private const val NAME = "[A-Za-z_][A-Za-z0-9_-]{0,63}"
private val IS_NAME = Regex(NAME)
private const val SHOWN = 80

internal fun checkName(name: String): String {
    if (!IS_NAME.matches(name)) throw ValueException("", "'${name.take(SHOWN)}' is no name: it must match ^$NAME\$")
    return name
}

/** Returns a name quoted for a statement. Values are params and never quoted. */
public fun quoteName(name: String): String = "`${checkName(name)}`"

/** Returns the value of the language that an object stands for: the form in which it would come back. */
internal fun normal(value: Any?): Any? =
    when (value) {
        is Int, is Short, is Byte -> (value as Number).toLong()
        is Float -> value.toDouble()
        is BigInteger -> longOf(value)
        is Duration -> durationOf(value)
        is kotlin.time.Instant -> Instant.ofEpochSecond(value.epochSeconds, value.nanosecondsOfSecond.toLong())
        is OffsetDateTime -> value.toInstant()
        is ZonedDateTime -> value.toInstant()
        is Date -> Instant.ofEpochMilli(value.time)
        else -> value
    }

private const val LONG_BITS = 63

private fun longOf(value: BigInteger): Long {
    if (value.bitLength() > LONG_BITS) throw ValueException("", "$value is beyond 64 bits with a sign")
    return value.toLong()
}

private fun durationOf(value: Duration): JavaDuration {
    if (value.isInfinite()) throw ValueException("", "an infinite duration is no value")
    return value.toJavaDuration()
}

private const val MICROS = 1_000_000L
private const val NANOS = 1_000L

/** Returns the microseconds of a duration, rounded away from zero: a time is never shorter than asked for. */
internal fun microsOf(value: JavaDuration): Long =
    try {
        val micros = if (value.isNegative) value.nano / NANOS else (value.nano + NANOS - 1) / NANOS
        // The parts of the least duration do not fit by themselves.
        if (value.seconds >= 0) {
            Math.addExact(Math.multiplyExact(value.seconds, MICROS), micros)
        } else {
            Math.addExact(Math.multiplyExact(value.seconds + 1, MICROS), micros - MICROS)
        }
    } catch (error: ArithmeticException) {
        throw ValueException("", "$value is beyond 64 bits of microseconds").apply { initCause(error) }
    }

internal fun durationOfMicros(micros: Long): JavaDuration =
    JavaDuration.ofSeconds(Math.floorDiv(micros, MICROS), Math.floorMod(micros, MICROS) * NANOS)

internal const val DECIMAL_DIGITS = 34
internal const val DECIMAL_EXPONENT = 6143

/** Returns an error text for a decimal that no node takes; null: it is fine. */
internal fun flawOf(value: BigDecimal): String? =
    when {
        value.precision() > DECIMAL_DIGITS -> "a decimal has at most $DECIMAL_DIGITS digits"
        Math.abs(value.scale().toLong()) > DECIMAL_EXPONENT + DECIMAL_DIGITS -> "the exponent of a decimal is within $DECIMAL_EXPONENT"
        else -> null
    }

/** Returns the name of the type of a value, for messages. */
internal fun kindOf(value: Any?): String = if (value == null) "null" else value::class.simpleName ?: "an object"

internal fun positive(given: Duration, name: String): Duration {
    if (given <= Duration.ZERO) throw ValueException(name, "a time is longer than nothing, not $given")
    return given
}

package storeclient

import org.msgpack.core.ExtensionTypeHeader
import org.msgpack.core.MessageBufferPacker
import org.msgpack.core.MessageFormat
import org.msgpack.core.MessagePack
import org.msgpack.core.MessagePackException
import org.msgpack.core.MessagePacker
import org.msgpack.core.MessageUnpacker
import org.msgpack.core.buffer.ArrayBufferInput
import org.msgpack.value.ValueType
import java.math.BigDecimal
import java.nio.ByteBuffer
import java.nio.charset.CharacterCodingException
import java.time.Instant
import java.util.UUID
import java.time.Duration as JavaDuration

/** Levels that a value may have. */
private const val DEPTH = 64

/** Levels of a frame of the node: a value, and at most sixteen around it. */
private const val FRAME_DEPTH = DEPTH + 16

private const val TIMESTAMP: Byte = -1
private const val DECIMAL: Byte = 1
private const val DURATION: Byte = 2
private const val UUID_CODE: Byte = 3
private const val RECORD: Byte = 4
private const val NOTHING: Byte = 5

private const val LONG_BYTES = 8
private const val UUID_BYTES = 16

private val EARLIEST = Instant.parse("0001-01-01T00:00:00Z")
private val LATEST = Instant.parse("9999-12-31T23:59:59.999999999Z")

/** A value in a body: null in it is null, where a field that is null is left out. */
internal class Given(val value: Any?)

/** Fields of a body, in the order in which they are sent: names and values in turn. A field that is null is left out. */
internal class Body(private vararg val fields: Any?) {
    operator fun get(name: String): Any? {
        for (n in fields.indices step 2) if (fields[n] == name) return fields[n + 1]
        return null
    }

    fun with(name: String, value: Any?): Body {
        val found = fields.toMutableList()
        val at = (found.indices step 2).find { found[it] == name }
        if (at == null) found.addAll(listOf(name, value)) else found[at + 1] = value
        return Body(*found.toTypedArray())
    }

    fun packTo(to: MessagePacker) {
        var count = 0
        for (n in 1 until fields.size step 2) if (fields[n] != null) count++
        to.packMapHeader(count)
        for (n in fields.indices step 2) {
            val name = fields[n] as String
            val value = fields[n + 1] ?: continue
            to.packString(name)
            pack(to, name, value)
        }
    }

    private fun pack(to: MessagePacker, name: String, value: Any) {
        when {
            name == "params" -> packParams(to, value as Map<*, *>)
            name == "values" -> packItems(to, name, value as List<*>)
            else -> at(name) { writeValue(to, if (value is Given) value.value else value, topDepth(value)) }
        }
    }

    private fun packParams(to: MessagePacker, params: Map<*, *>) {
        to.packMapHeader(params.size)
        for ((name, value) in params) {
            at("$$name") {
                writeText(to, name as String)
                writeValue(to, value, topDepth(value))
            }
        }
    }

    private fun packItems(to: MessagePacker, name: String, items: List<*>) {
        to.packArrayHeader(items.size)
        for ((n, item) in items.withIndex()) at("$name[$n]") { writeValue(to, item, topDepth(item)) }
    }

    override fun toString(): String = "Body(${fields.getOrNull(1)})" // it may hold secrets
}

/** Items of a list are values by themselves: the node says if they are rows. */
private fun topDepth(value: Any?): Int = if ((if (value is Given) value.value else value) is Collection<*>) -1 else 0

private inline fun at(place: String, write: () -> Unit) {
    try {
        write()
    } catch (error: ValueException) {
        throw error.under(place)
    }
}

// --- encoding ----------------------------------------------------------------------------------------

private val PACKERS = ThreadLocal.withInitial { MessagePack.newDefaultBufferPacker() }
private val INNER_PACKERS = ThreadLocal.withInitial { MessagePack.newDefaultBufferPacker() }

/** Returns the bytes of a body; of none those of nil. */
internal fun packBody(body: Body?): ByteArray = packed(PACKERS) { if (body == null) it.packNil() else body.packTo(it) }

/** Returns the bytes of one value. */
internal fun packValue(value: Any?): ByteArray = packed(PACKERS) { writeValue(it, value, 0) }

private inline fun packed(packers: ThreadLocal<MessageBufferPacker>, write: (MessagePacker) -> Unit): ByteArray {
    val packer = packers.get()
    packer.clear() // one that was refused may have left bytes
    write(packer)
    return packer.toByteArray()
}

private fun writeValue(to: MessagePacker, value: Any?, depth: Int) {
    when (value) {
        null -> to.packNil()
        is String -> writeText(to, value)
        is Long -> to.packLong(value)
        is Int -> to.packInt(value)
        is Boolean -> to.packBoolean(value)
        is Double -> writeDouble(to, value)
        is Map<*, *> -> writeFields(to, value, depth)
        is List<*> -> writeItems(to, value, value.size, depth)
        else -> writeOther(to, normal(value), depth)
    }
}

private fun writeOther(to: MessagePacker, value: Any?, depth: Int) {
    when (value) {
        is Long -> to.packLong(value)

        is Double -> writeDouble(to, value)

        is ByteArray -> {
            to.packBinaryHeader(value.size)
            to.writePayload(value)
        }

        is BigDecimal -> writeDecimal(to, value)

        is Instant -> writeInstant(to, value)

        is JavaDuration -> writeExtension(to, DURATION, ByteBuffer.allocate(LONG_BYTES).putLong(microsOf(value)).array())

        is UUID -> writeExtension(to, UUID_CODE, bytesOf(value))

        is RecordId -> writeExtension(to, RECORD, packedRecord(value))

        None -> writeExtension(to, NOTHING, ByteArray(0))

        is Set<*> -> writeItems(to, value, value.size, depth)

        is Array<*> -> writeItems(to, value.asList(), value.size, depth)

        is LongArray -> writeItems(to, value.asList(), value.size, depth)

        is IntArray -> writeItems(to, value.asList(), value.size, depth)

        is DoubleArray -> writeItems(to, value.asList(), value.size, depth)

        is FloatArray -> writeItems(to, value.asList(), value.size, depth)

        is Enum<*> -> writeText(to, value.name)

        is java.time.LocalDateTime -> throw ValueException("", "a datetime has a zone: give an Instant, not a LocalDateTime")

        else -> throw ValueException("", "a ${kindOf(value)} is no value of the language")
    }
}

private fun writeText(to: MessagePacker, text: String) {
    var n = 0
    while (n < text.length) {
        val code = text[n]
        if (code.isSurrogate()) {
            if (code.isLowSurrogate() || n + 1 >= text.length || !text[n + 1].isLowSurrogate()) {
                throw ValueException("", "a string has no lone surrogates: bytes go as a ByteArray")
            }
            n++
        }
        n++
    }
    to.packString(text)
}

private fun writeDouble(to: MessagePacker, value: Double) {
    if (!value.isFinite()) throw ValueException("", "$value is no number of the language")
    to.packDouble(value)
}

private fun checkDepth(depth: Int) {
    if (depth >= DEPTH) throw ValueException("", "it nests deeper than $DEPTH")
}

private fun writeFields(to: MessagePacker, fields: Map<*, *>, depth: Int) {
    checkDepth(depth)
    to.packMapHeader(fields.size)
    for ((name, item) in fields) {
        if (name !is String) throw ValueException("", "the names of fields are strings, not ${kindOf(name)}")
        at(".$name") {
            writeText(to, name)
            writeValue(to, item, depth + 1)
        }
    }
}

private fun writeItems(to: MessagePacker, items: Collection<*>, count: Int, depth: Int) {
    checkDepth(depth)
    to.packArrayHeader(count)
    for ((n, item) in items.withIndex()) {
        try {
            writeValue(to, item, depth + 1)
        } catch (error: ValueException) {
            throw error.under("[$n]")
        }
    }
}

private fun writeDecimal(to: MessagePacker, value: BigDecimal) {
    flawOf(value)?.let { throw ValueException("", "$it: $value") }
    writeExtension(to, DECIMAL, value.toString().toByteArray(Charsets.US_ASCII))
}

private fun writeInstant(to: MessagePacker, at: Instant) {
    if (at < EARLIEST || at > LATEST) throw ValueException("", "$at is beyond the years 1 to 9999")
    to.packTimestamp(at)
}

private fun writeExtension(to: MessagePacker, code: Byte, data: ByteArray) {
    to.packExtensionTypeHeader(code, data.size)
    to.writePayload(data)
}

private fun bytesOf(id: UUID): ByteArray =
    ByteBuffer.allocate(UUID_BYTES).putLong(id.mostSignificantBits).putLong(id.leastSignificantBits).array()

private fun packedRecord(record: RecordId): ByteArray =
    packed(INNER_PACKERS) {
        it.packArrayHeader(2)
        writeText(it, record.table)
        writeKey(it, record.id, 0)
    }

private fun writeKey(to: MessagePacker, key: Any?, depth: Int) {
    when (key) {
        is List<*> -> {
            checkDepth(depth)
            to.packArrayHeader(key.size)
            for (item in key) writeKey(to, item, depth + 1)
        }

        is String -> writeText(to, key)

        is Long -> to.packLong(key)

        else -> writeExtension(to, UUID_CODE, bytesOf(key as UUID))
    }
}

// --- decoding ----------------------------------------------------------------------------------------

/** Items that room is made for before they are there. */
private const val BELIEVED = 1024

/** The bytes are no value. */
internal class MalformedException(message: String) : RuntimeException(message)

/** Reads values of the node, which are not trusted: depth and lengths are checked before anything is made of them. */
internal class Decoder {
    private val input = ArrayBufferInput(ByteArray(0))
    private val unpacker: MessageUnpacker = MessagePack.newDefaultUnpacker(input)
    private var size = 0L
    private var isInKey = false

    /** Returns the one value that a part of an array is. */
    fun read(bytes: ByteArray, start: Int, length: Int): Any? {
        input.reset(bytes, start, length)
        unpacker.reset(input)
        size = length.toLong()
        try {
            val value = value(0)
            if (left() != 0L) throw MalformedException("${left()} bytes stand behind it")
            return value
        } catch (error: MessagePackException) {
            throw MalformedException(error.message ?: "it ends too early")
        }
    }

    private fun left(): Long = size - unpacker.totalReadBytes

    private fun checkLeft(count: Long) {
        if (count > left()) throw MalformedException("it ends too early")
    }

    private fun value(depth: Int): Any? {
        checkLeft(1)
        val format = unpacker.nextFormat
        return when (format.valueType) {
            ValueType.NIL -> {
                unpacker.unpackNil()
                null
            }

            ValueType.BOOLEAN -> unpacker.unpackBoolean()

            ValueType.INTEGER -> unpacker.unpackLong()

            ValueType.FLOAT -> double(format)

            ValueType.STRING -> text()

            ValueType.BINARY -> unpacker.unpackBinaryHeader().let { payload(it) }

            ValueType.ARRAY -> array(depth)

            ValueType.MAP -> map(depth)

            ValueType.EXTENSION -> extension(unpacker.unpackExtensionTypeHeader())

            else -> throw MalformedException("$format begins no value")
        }
    }

    private fun double(format: MessageFormat): Double {
        val found = if (format == MessageFormat.FLOAT32) unpacker.unpackFloat().toDouble() else unpacker.unpackDouble()
        if (!found.isFinite()) throw MalformedException("$found is no number of the language")
        return found
    }

    private fun payload(count: Int): ByteArray {
        checkLeft(count.toLong())
        return unpacker.readPayload(count)
    }

    private fun text(): String {
        val bytes = payload(unpacker.unpackRawStringHeader())
        val text = String(bytes, Charsets.UTF_8)
        if (text.indexOf('\uFFFD') >= 0) {
            try {
                Charsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes))
            } catch (_: CharacterCodingException) {
                throw MalformedException("a string is UTF-8")
            }
        }
        return text
    }

    private fun array(depth: Int): List<Any?> {
        if (depth >= FRAME_DEPTH) throw MalformedException("it nests deeper than $FRAME_DEPTH")
        val count = unpacker.unpackArrayHeader()
        checkLeft(count.toLong())
        val found = ArrayList<Any?>(minOf(count, BELIEVED))
        repeat(count) { found.add(value(depth + 1)) }
        return found
    }

    private fun map(depth: Int): Map<String, Any?> {
        if (depth >= FRAME_DEPTH) throw MalformedException("it nests deeper than $FRAME_DEPTH")
        val count = unpacker.unpackMapHeader()
        checkLeft(2L * count)
        val found = LinkedHashMap<String, Any?>(2 * minOf(count, BELIEVED))
        repeat(count) {
            checkLeft(1)
            if (unpacker.nextFormat.valueType != ValueType.STRING) throw MalformedException("the keys of an object are strings")
            found[text()] = value(depth + 1)
        }
        return found
    }

    private fun extension(header: ExtensionTypeHeader): Any {
        val count = header.length
        val bytes = payload(count)
        return when {
            header.type == TIMESTAMP -> instant(ByteBuffer.wrap(bytes))
            header.type == DECIMAL -> decimal(bytes)
            header.type == DURATION && count == LONG_BYTES -> durationOfMicros(ByteBuffer.wrap(bytes).long)
            header.type == UUID_CODE && count == UUID_BYTES -> ByteBuffer.wrap(bytes).let { UUID(it.long, it.long) }
            header.type == NOTHING && count == 0 -> None
            header.type == RECORD && !isInKey -> recordOf(Decoder().also { it.isInKey = true }.read(bytes, 0, count))
            else -> throw MalformedException("an extension ${header.type} of $count bytes is not known to this version of the client")
        }
    }

    private fun decimal(bytes: ByteArray): BigDecimal {
        val text = String(bytes, Charsets.ISO_8859_1)
        val found = if (DECIMAL_TEXT.matches(text)) text.toBigDecimalOrNull() else null
        return found?.takeIf { flawOf(it) == null } ?: throw MalformedException("'${text.take(DECIMAL_DIGITS)}' is no decimal")
    }
}

private val DECIMAL_TEXT = Regex("[+-]?\\d+(?:\\.\\d*)?(?:[eE][+-]?\\d+)?")

private const val INT_MASK = 0xffff_ffffL
private const val SECONDS_BITS = 34
private const val SECONDS_MASK = (1L shl SECONDS_BITS) - 1
private const val NANOS_MOST = 999_999_999L
private const val MICRO = 1_000L

private fun instant(bytes: ByteBuffer): Instant {
    val seconds: Long
    val nanos: Long
    when (bytes.remaining()) {
        Int.SIZE_BYTES -> {
            seconds = bytes.int.toLong() and INT_MASK
            nanos = 0
        }

        Long.SIZE_BYTES -> {
            val both = bytes.long
            seconds = both and SECONDS_MASK
            nanos = both ushr SECONDS_BITS
        }

        Int.SIZE_BYTES + Long.SIZE_BYTES -> {
            nanos = bytes.int.toLong() and INT_MASK
            seconds = bytes.long
        }

        else -> throw MalformedException("a timestamp has 4, 8 or 12 bytes")
    }
    if (nanos > NANOS_MOST || seconds < EARLIEST.epochSecond || seconds > LATEST.epochSecond) {
        throw MalformedException("a datetime is within the years 1 to 9999")
    }
    return Instant.ofEpochSecond(seconds, nanos / MICRO * MICRO)
}

private fun recordOf(value: Any?): RecordId {
    val parts = value as? List<*>
    val table = parts?.firstOrNull()
    if (parts?.size != 2 || table !is String || !isKey(parts[1])) throw MalformedException("a record is a table and an id")
    return RecordId(table, parts[1]!!)
}

private fun isKey(id: Any?): Boolean = id is String || id is Long || id is UUID || (id is List<*> && id.all(::isKey))

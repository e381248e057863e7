package storeclient

import kotlinx.serialization.Contextual
import kotlinx.serialization.Serializable
import kotlinx.serialization.SerializationException
import org.junit.jupiter.api.Test
import storeclient.serialization.decodeValue
import storeclient.serialization.encodeValue
import java.math.BigDecimal
import java.math.BigInteger
import java.time.Instant
import java.time.LocalDateTime
import java.time.ZoneOffset
import java.util.HexFormat
import java.util.UUID
import kotlin.random.Random
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertTrue
import kotlin.time.Duration.Companion.INFINITE
import kotlin.time.Duration.Companion.days
import kotlin.time.Duration.Companion.milliseconds
import java.time.Duration as JavaDuration

private fun decode(bytes: ByteArray): Any? = Decoder().read(bytes, 0, bytes.size)

private fun hex(text: String): ByteArray = HexFormat.of().parseHex(text.replace(" ", ""))

private fun hexOf(value: Any?): String = HexFormat.of().formatHex(packValue(value))

class CodecTest {
    private val id = UUID.fromString("018f0000-0000-0000-0000-000000000000")

    @Test
    fun `C30 values go there and back`() {
        val values =
            listOf(
                null, true, false, 0L, -1L, 127L, 128L, -33L, 65536L, Long.MAX_VALUE, Long.MIN_VALUE, 1.0, -0.0, 0.1, Double.MIN_VALUE,
                "", "naïve ☃ \uD83D\uDE00 'quoted'", "x".repeat(70_000), BigDecimal("12.30"), BigDecimal("1E+3"), BigDecimal("0E-9"),
                BigDecimal("-9999999999999999999999999999999999"), Instant.parse("2026-01-02T03:04:05.123456Z"),
                Instant.parse("0001-01-01T00:00:00Z"), Instant.parse("9999-12-31T23:59:59.999999Z"), Instant.parse("1931-01-02T03:04:05.000007Z"),
                JavaDuration.ofDays(-3), durationOfMicros(Long.MAX_VALUE), durationOfMicros(Long.MIN_VALUE), id, None,
                RecordId("person", listOf("a", 1, id)), RecordId("person", 7), listOf(1L, listOf(2.5, listOf("x")), emptyList<Any>()),
                mapOf("b c" to mapOf("d" to emptyList<Any>()), "" to null),
            )
        for (value in values) assertEquals(value, decode(packValue(value)))
        assertContentEquals(byteArrayOf(0, -1), decode(packValue(byteArrayOf(0, -1))) as ByteArray)
    }

    @Test
    fun `C30 an int and a float are two types, and widths do not matter`() {
        assertEquals("01", hexOf(1))
        assertEquals("cb3ff0000000000000", hexOf(1.0))
        assertEquals("cb3fb99999a0000000", hexOf(0.1f))
        for (wide in listOf("cc05", "cd0005", "ce00000005", "cf0000000000000005", "d005", "d10005", "d200000005", "d30000000000000005")) {
            assertEquals(5L, decode(hex(wide)))
        }
        assertEquals(1.5, decode(hex("ca3fc00000")))
        assertEquals("c7 05 01 31322e3330".replace(" ", ""), hexOf(BigDecimal("12.30")))
        assertEquals("d7 02 00000000000000b4".replace(" ", ""), hexOf(JavaDuration.ofNanos(180_000)))
        assertEquals("c70005", hexOf(None))
    }

    @Test
    fun `C30 types of the platform become types of the language`() {
        val at = Instant.parse("2026-01-02T03:04:05Z")
        val same =
            listOf(
                7 to 7L, 7.toByte() to 7L, BigInteger.TWO to 2L, 1.5f to 1.5, 90.milliseconds to JavaDuration.ofMillis(90),
                at.atOffset(ZoneOffset.ofHours(2)) to at, at.atZone(ZoneOffset.UTC) to at, java.util.Date.from(at) to at,
                intArrayOf(1, 2) to listOf(1L, 2L), arrayOf("a", null) to listOf("a", null), setOf("a") to listOf("a"),
                Action.CREATE to "CREATE", 200_000.days to JavaDuration.ofDays(200_000),
            )
        for ((given, found) in same) assertEquals(found, decode(packValue(given)))
    }

    @Test
    fun `C53 queries are objects, and vectors arrays of floats`() {
        assertEquals(listOf(0.5, 1.0), decode(packValue(floatArrayOf(0.5f, 1f))))
        assertEquals(listOf(0.5, 1.0), decode(packValue(doubleArrayOf(0.5, 1.0))))
        assertFailsWith<ValueException> { packValue(floatArrayOf(Float.NaN)) }
        val query = Search.all(Search.boost("tin", 2.0), Search.not(Search.any(Search.phrase("a b"), Search.fuzzy("c"), Search.prefix("d"))))
        val kinds = listOf(mapOf("phrase" to listOf("a b", 0L)), mapOf("fuzzy" to listOf("c", 1L)), mapOf("prefix" to "d"))
        assertEquals(mapOf("all" to listOf(mapOf("boost" to listOf("tin", 2.0)), mapOf("not" to mapOf("any" to kinds)))), decode(packValue(query)))
    }

    @Test
    fun `C31 what is no value is refused, with its place`() {
        val wrong =
            listOf(
                Double.NaN to "no number", Double.NEGATIVE_INFINITY to "no number", BigInteger.ONE.shiftLeft(63) to "beyond 64 bits",
                LocalDateTime.now() to "has a zone", Any() to "is no value", "\uD800" to "lone surrogates", "a\uDC00b" to "lone surrogates",
                BigDecimal("1".repeat(35)) to "34 digits", BigDecimal("1E+7000") to "exponent", Instant.MAX to "beyond the years",
                INFINITE to "infinite", JavaDuration.ofSeconds(Long.MAX_VALUE) to "beyond 64 bits", mapOf(1 to 2) to "are strings",
                generateSequence<Any>("x") { listOf(it) }.elementAt(66) to "deeper than 64",
            )
        for ((value, reason) in wrong) {
            val error =
                assertFailsWith<ValueException>("$value") { packBody(Body("script", "x", "params", mapOf("item" to mapOf("sizes" to listOf(1, value))))) }
            assertTrue(error.path.startsWith("\$item.sizes[1]"), error.path)
            assertTrue(reason in error.reason, error.reason)
        }
        assertEquals("values[1].a", assertFailsWith<ValueException> { packBody(Body("values", listOf(1, mapOf("a" to Any())))) }.path)
        assertEquals("value", assertFailsWith<ValueException> { packBody(Body("value", Given(Any()))) }.path)
        assertFailsWith<IllegalArgumentException> { RecordId("person", 1.5) }
        val call = object : Call(Kind.RUN) {
            override fun settle(reply: Any?, error: Throwable?) = Unit
        }
        assertFailsWith<ValueException> { Exchange(Pulse()).begin(call, ByteArray(FRAME_MOST)) }
        packValue(generateSequence<Any>("x") { listOf(it) }.elementAt(64))
    }

    @Test
    fun `C8 malformed bytes are refused, and never believed`() {
        val wrong =
            listOf(
                "", "c1", "91", "a5 61", "dd ffffffff", "df ffffffff", "dd 7fffffff", "df 7fffffff", "db ffffffff", "c6 7fffffff", "a1 ff", "81 01 02",
                "cf ffffffffffffffff",
                "cb 7ff8000000000000", "ca 7f800000", "d4 09 00", "d5 02 0000", "c7 00 04", "d4 01 78", "c7 03 01 4e614e", "01 01",
                "c7 0c ff 3b9aca00 0000000000000000", "c7 0c ff 00000000 7fffffffffffffff", "d4 ff 00", "c7 03 04 92 01 02", "c9 7fffffff 05",
            )
        for (one in wrong) assertFailsWith<MalformedException>(one) { decode(hex(one)) }
        assertFailsWith<MalformedException> { decode(ByteArray(81) { 0x91.toByte() } + 0) }
        decode(ByteArray(80) { 0x91.toByte() } + 0)
        val random = Random(7)
        repeat(20_000) {
            val bytes = random.nextBytes(random.nextInt(1, 40))
            try {
                decode(bytes)
            } catch (_: MalformedException) {
                return@repeat
            }
        }
    }

    @Test
    fun `C8 frames come in any pieces, and a long one is refused`() {
        val bytes = Bytes()
        for (n in 1L..3) addFrame(bytes, Kind.VALUE, n * 100, packValue(mapOf("n" to n)))
        val frames = Frames()
        val found = ArrayList<Long>()
        for (n in 0 until bytes.size) {
            frames.add(byteArrayOf(bytes.array[n]), 1)
            frames.next()?.let { found.add(it.id) }
        }
        assertEquals(listOf(100L, 200L, 300L), found)
        for (head in listOf("01000001", "ffffffff", "48545450", "15030300")) {
            assertFailsWith<ProtocolBrokenException> { Frames().run { hex(head).let { add(it, it.size) }.let { next() } } }
        }
        for (body in listOf("93 01 00 c0", "93 63 01 c0", "92 24 01", "93 24 01 01", "c0")) {
            val frame = hex(body).let { byteArrayOf(0, 0, 0, it.size.toByte()) + it }
            assertFailsWith<ProtocolBrokenException>(body) { Frames().run { add(frame, frame.size).let { next() } } }
        }
    }

    @Serializable
    data class Part(val name: String, val count: Int = 1)

    @Serializable
    enum class Color { RED, }

    @Serializable
    data class Item(
        val id: @Contextual RecordId,
        val price: @Contextual BigDecimal,
        val at: @Contextual Instant?,
        val parts: List<Part>,
        val sizes: Map<String, Double>,
        val color: Color = Color.RED,
        val note: String? = null,
    )

    @Test
    fun `objects by kotlinx serialization`() {
        val item = Item(RecordId("item", 1), BigDecimal("12.30"), Instant.EPOCH, listOf(Part("a", 2), Part("b")), mapOf("x" to 1.0), note = "n")
        val value = encodeValue(item)
        assertEquals(item, decodeValue(decode(packValue(value))))
        val row = mapOf("id" to item.id, "price" to item.price, "at" to None, "parts" to emptyList<Any>(), "sizes" to emptyMap<String, Any>(), "more" to 1L)
        assertEquals(Item(item.id, item.price, null, emptyList(), emptyMap()), decodeValue(row))
        assertEquals(listOf(1, 2), decodeValue<List<Int>>(listOf(1L, 2L)))
        assertEquals(
            "parts[0].count is String, not Long",
            assertFailsWith<SerializationException> {
                decodeValue<Item>(row + ("parts" to listOf(mapOf("name" to "a", "count" to "x"))))
            }.message,
        )
        assertFailsWith<SerializationException> { decodeValue<Int>(1L shl 40) }
        assertFailsWith<SerializationException> { decodeValue<Part>(mapOf("count" to 1L)) }
    }
}

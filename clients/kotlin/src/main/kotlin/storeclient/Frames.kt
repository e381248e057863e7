package storeclient

import java.nio.ByteBuffer

/** Longest frame that either side takes. */
internal const val FRAME_MOST = 16 shl 20

internal enum class Kind(val number: Int, val isOfNode: Boolean = false) {
    HELLO(1),
    AUTH(2),
    RUN(3),
    CANCEL(4),
    PING(5),
    BYE(6, true),
    KV(7),
    TOPIC(8),
    WATCH(9),
    UNWATCH(10),
    VAULT(11),
    WELCOME(32, true),
    REFUSED(33, true),
    ANSWER(34, true),
    ERROR(35, true),
    PONG(36, true),
    VALUE(37, true),
    CHANGE(38, true),
    PART(39, true),
    ;

    companion object {
        private val BY_NUMBER = entries.associateBy { it.number.toLong() }

        fun of(number: Long): Kind? = BY_NUMBER[number]
    }
}

/** A message of the node. */
internal class Frame(val kind: Kind, val id: Long, val body: Row, val size: Int)

/** Bytes that grow. */
internal class Bytes {
    var array = ByteArray(INITIAL)
        private set
    var size = 0
        private set

    /** Makes room for so many bytes, and returns where they begin. */
    fun room(count: Int): Int {
        val at = size
        size += count
        if (size > array.size) array = array.copyOf(maxOf(size, 2 * array.size))
        return at
    }

    fun add(bytes: ByteArray, from: Int = 0, count: Int = bytes.size) {
        val at = room(count) // which may change the array
        System.arraycopy(bytes, from, array, at, count)
    }

    fun remove(start: Int, end: Int) {
        System.arraycopy(array, end, array, start, size - end)
        size -= end - start
    }

    fun clear() {
        size = 0
        if (array.size > KEPT) array = ByteArray(INITIAL)
    }

    private companion object {
        const val INITIAL = 4096
        const val KEPT = 2 shl 20
    }
}

private const val HEAD = 4
private const val ARRAY_OF_THREE = 0x93.toByte()
private const val FIX_INT_MOST = 0x7f
private const val INT_64 = 0xcf.toByte()

/** Adds the frame of a message whose body is packed. */
internal fun addFrame(to: Bytes, kind: Kind, id: Long, body: ByteArray) {
    val idBytes = if (id <= FIX_INT_MOST) 1 else 1 + Long.SIZE_BYTES
    val at = to.room(HEAD + 2 + idBytes)
    val head = ByteBuffer.wrap(to.array, at, HEAD + 2 + idBytes)
    head.putInt(2 + idBytes + body.size)
    head.put(ARRAY_OF_THREE).put(kind.number.toByte())
    if (idBytes == 1) head.put(id.toByte()) else head.put(INT_64).putLong(id)
    to.add(body)
}

/** Bytes of the frame around a body. */
internal const val AROUND_BODY = 2 + 1 + Long.SIZE_BYTES

/** Cuts what comes into messages. */
internal class Frames {
    private val decoder = Decoder()
    private val bytes = Bytes()
    private var start = 0

    fun add(chunk: ByteArray, count: Int) {
        if (start == bytes.size) {
            bytes.clear()
            start = 0
        } else if (start > bytes.size / 2) {
            bytes.remove(0, start)
            start = 0
        }
        bytes.add(chunk, 0, count)
    }

    /** Returns the next message; null: more has to come. */
    fun next(): Frame? {
        if (bytes.size - start < HEAD) return null
        val size = ByteBuffer.wrap(bytes.array, start, HEAD).int
        if (size < 0 || size > FRAME_MOST) throw tooLarge(size)
        if (bytes.size - start - HEAD < size) return null
        val message = read(start + HEAD, size)
        start += HEAD + size
        return message
    }

    private fun tooLarge(size: Int): ProtocolBrokenException {
        val isTls = bytes.array[start] == TLS_ALERT && bytes.array[start + 1] == TLS_MAJOR
        return broken(
            when {
                String(bytes.array, start, HEAD, Charsets.ISO_8859_1) == "HTTP" ->
                    "HTTP is spoken there: the wire protocol has a port of its own, that of the node's --serve"

                isTls -> "TLS is spoken there: connect with tls"

                else -> "the node sent a frame of ${Integer.toUnsignedString(size)} bytes"
            },
        )
    }

    private fun read(at: Int, size: Int): Frame {
        val parts =
            try {
                decoder.read(bytes.array, at, size)
            } catch (error: MalformedException) {
                throw broken("the node sent what is no message: ${error.message}", error)
            }
        if (parts is List<*> && parts.size == PARTS) {
            val (number, id, body) = parts
            if (number is Long && id is Long && (body == null || body is Map<*, *>)) {
                val kind = Kind.of(number)
                if (kind == null || !kind.isOfNode) throw broken("the node sent a message of kind $number")
                @Suppress("UNCHECKED_CAST")
                return Frame(kind, id, body as Row? ?: emptyMap(), size)
            }
        }
        throw broken("the node sent what is no message")
    }

    private companion object {
        const val TLS_ALERT: Byte = 0x15
        const val TLS_MAJOR: Byte = 3
        const val PARTS = 3
    }
}

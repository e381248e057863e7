@file:OptIn(ExperimentalSerializationApi::class)

package storeclient.serialization

import kotlinx.serialization.ExperimentalSerializationApi
import kotlinx.serialization.SerializationException
import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.descriptors.StructureKind
import kotlinx.serialization.encoding.AbstractDecoder
import kotlinx.serialization.encoding.AbstractEncoder
import kotlinx.serialization.encoding.CompositeDecoder
import kotlinx.serialization.encoding.CompositeEncoder
import kotlinx.serialization.modules.SerializersModule
import storeclient.None

/** Reads a tree of values. [path] names the place of a value that does not fit. */
internal open class ValueDecoder(private var value: Any?, private val path: String) : AbstractDecoder() {
    override val serializersModule: SerializersModule get() = storeModule

    override fun decodeElementIndex(descriptor: SerialDescriptor): Int = CompositeDecoder.DECODE_DONE

    /** Returns the value that is next. */
    protected open fun current(): Any? = value

    /** Returns the place of the value that is next. */
    protected open fun place(): String = path

    fun <T : Any> take(type: Class<T>): T {
        val found = current()
        return if (type.isInstance(found)) type.cast(found) else throw misfit(type.simpleName, found)
    }

    private fun misfit(wanted: String, found: Any?): SerializationException {
        val at = place().removePrefix(".").ifEmpty { "the value" }
        return SerializationException("$at is ${found?.let { it::class.simpleName } ?: "null"}, not $wanted")
    }

    override fun decodeNotNullMark(): Boolean = current() != null && current() != None

    override fun decodeNull(): Nothing? = null

    override fun decodeBoolean(): Boolean = take(Boolean::class.javaObjectType)

    override fun decodeString(): String = take(String::class.java)

    override fun decodeLong(): Long = take(Long::class.javaObjectType)

    override fun decodeInt(): Int = whole(Int.MIN_VALUE.toLong()..Int.MAX_VALUE, "Int").toInt()

    override fun decodeShort(): Short = whole(Short.MIN_VALUE.toLong()..Short.MAX_VALUE, "Short").toShort()

    override fun decodeByte(): Byte = whole(Byte.MIN_VALUE.toLong()..Byte.MAX_VALUE, "Byte").toByte()

    private fun whole(range: LongRange, wanted: String): Long {
        val found = decodeLong()
        return if (found in range) found else throw SerializationException("${place().removePrefix(".")} is $found, which no $wanted holds")
    }

    override fun decodeDouble(): Double = take(Double::class.javaObjectType)

    override fun decodeFloat(): Float = decodeDouble().toFloat()

    override fun decodeEnum(enumDescriptor: SerialDescriptor): Int {
        val name = decodeString()
        val found = enumDescriptor.getElementIndex(name)
        return if (found >= 0) found else throw SerializationException("$name is none of ${enumDescriptor.serialName}")
    }

    override fun beginStructure(descriptor: SerialDescriptor): CompositeDecoder {
        val found = current()
        return when (descriptor.kind) {
            StructureKind.LIST -> ListDecoder(found as? List<*> ?: throw misfit("List", found), place())
            StructureKind.MAP -> EntriesDecoder(found as? Map<*, *> ?: throw misfit("Map", found), place())
            else -> FieldsDecoder(found as? Map<*, *> ?: throw misfit(descriptor.serialName, found), place())
        }
    }
}

private class ListDecoder(private val items: List<*>, private val path: String) : ValueDecoder(null, path) {
    private var next = 0

    override fun current(): Any? = items[next - 1]

    override fun place(): String = "$path[${next - 1}]"

    override fun decodeElementIndex(descriptor: SerialDescriptor): Int = if (next < items.size) next++ else CompositeDecoder.DECODE_DONE

    override fun decodeCollectionSize(descriptor: SerialDescriptor): Int = items.size
}

private class EntriesDecoder(entries: Map<*, *>, private val path: String) : ValueDecoder(null, path) {
    private val items = entries.flatMap { listOf(it.key, it.value) }
    private var next = 0

    override fun current(): Any? = items[next - 1]

    override fun place(): String = "$path.${items[(next - 1) / 2 * 2]}"

    override fun decodeElementIndex(descriptor: SerialDescriptor): Int = if (next < items.size) next++ else CompositeDecoder.DECODE_DONE

    override fun decodeCollectionSize(descriptor: SerialDescriptor): Int = items.size / 2
}

private class FieldsDecoder(private val fields: Map<*, *>, private val path: String) : ValueDecoder(null, path) {
    private var next = 0
    private var name = ""

    override fun current(): Any? = fields[name]

    override fun place(): String = "$path.$name"

    override fun decodeElementIndex(descriptor: SerialDescriptor): Int {
        while (next < descriptor.elementsCount) {
            name = descriptor.getElementName(next++)
            if (name in fields) return next - 1
        }
        return CompositeDecoder.DECODE_DONE
    }
}

/** Writes a tree of values: [put] takes each that it comes to. */
internal abstract class ValueEncoder : AbstractEncoder() {
    override val serializersModule: SerializersModule get() = storeModule

    abstract fun put(value: Any?)

    override fun encodeValue(value: Any): Unit = put(value)

    override fun encodeNull(): Unit = put(null)

    override fun encodeEnum(enumDescriptor: SerialDescriptor, index: Int): Unit = put(enumDescriptor.getElementName(index))

    override fun beginStructure(descriptor: SerialDescriptor): CompositeEncoder =
        when (descriptor.kind) {
            StructureKind.LIST -> ItemsEncoder(ArrayList<Any?>().also(::put))
            StructureKind.MAP -> EntriesEncoder(LinkedHashMap<String, Any?>().also(::put))
            else -> FieldsEncoder(LinkedHashMap<String, Any?>().also(::put))
        }
}

internal class RootEncoder : ValueEncoder() {
    var made: Any? = null
        private set

    override fun put(value: Any?) {
        made = value
    }
}

private class ItemsEncoder(private val items: MutableList<Any?>) : ValueEncoder() {
    override fun put(value: Any?) {
        items.add(value)
    }
}

private class EntriesEncoder(private val entries: MutableMap<String, Any?>) : ValueEncoder() {
    private var key: String? = null

    override fun put(value: Any?) {
        val name = key
        if (name == null) {
            key = value as? String ?: throw SerializationException("the keys of a map are strings")
        } else {
            entries[name] = value
            key = null
        }
    }
}

private class FieldsEncoder(private val fields: MutableMap<String, Any?>) : ValueEncoder() {
    private var name = ""

    override fun encodeElement(descriptor: SerialDescriptor, index: Int): Boolean {
        name = descriptor.getElementName(index)
        return true
    }

    override fun put(value: Any?) {
        fields[name] = value
    }
}

// Typed rows and values by kotlinx.serialization. A program that calls these functions brings that library:
// `org.jetbrains.kotlinx:kotlinx-serialization-core`.

package storeclient.serialization

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.map
import kotlinx.serialization.DeserializationStrategy
import kotlinx.serialization.KSerializer
import kotlinx.serialization.SerializationStrategy
import kotlinx.serialization.descriptors.PrimitiveKind
import kotlinx.serialization.descriptors.PrimitiveSerialDescriptor
import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.encoding.Decoder
import kotlinx.serialization.encoding.Encoder
import kotlinx.serialization.modules.SerializersModule
import kotlinx.serialization.modules.contextual
import kotlinx.serialization.serializer
import storeclient.Answer
import storeclient.Cache
import storeclient.Change
import storeclient.Message
import storeclient.RecordId
import storeclient.Row
import storeclient.Runner
import java.math.BigDecimal
import java.time.Instant
import java.util.UUID
import kotlin.time.Duration
import java.time.Duration as JavaDuration

/** Serializer of a type of the language, which goes through as it is. */
public sealed class ValueSerializer<T : Any>(name: String, private val type: Class<T>) : KSerializer<T> {
    override val descriptor: SerialDescriptor = PrimitiveSerialDescriptor("storeclient.$name", PrimitiveKind.STRING)

    override fun serialize(encoder: Encoder, value: T): Unit = (encoder as ValueEncoder).put(value)

    override fun deserialize(decoder: Decoder): T = (decoder as ValueDecoder).take(type)
}

/** Serializer of record ids. */
public object RecordIdSerializer : ValueSerializer<RecordId>("RecordId", RecordId::class.java)

/** Serializer of datetimes. */
public object InstantSerializer : ValueSerializer<Instant>("Instant", Instant::class.java)

/** Serializer of durations. */
public object DurationSerializer : ValueSerializer<JavaDuration>("Duration", JavaDuration::class.java)

/** Serializer of decimals. */
public object DecimalSerializer : ValueSerializer<BigDecimal>("Decimal", BigDecimal::class.java)

/** Serializer of uuids. */
public object UuidSerializer : ValueSerializer<UUID>("Uuid", UUID::class.java)

/** Serializer of bytes. */
public object BytesSerializer : ValueSerializer<ByteArray>("Bytes", ByteArray::class.java)

/** Serializers of the language's types, for properties that are marked with `@Contextual`. */
public val storeModule: SerializersModule =
    SerializersModule {
        contextual(RecordIdSerializer)
        contextual(InstantSerializer)
        contextual(DurationSerializer)
        contextual(DecimalSerializer)
        contextual(UuidSerializer)
        contextual(BytesSerializer)
    }

/** Returns an object of a value of the language. Fields that the object does not have are passed over. */
public fun <T> decodeValue(deserializer: DeserializationStrategy<T>, value: Any?): T = ValueDecoder(value, "").decodeSerializableValue(deserializer)

/** Returns a value of the language of an object. */
public fun <T> encodeValue(serializer: SerializationStrategy<T>, value: T): Any? =
    RootEncoder().also { it.encodeSerializableValue(serializer, value) }.made

/** Returns an object of a value of the language. */
public inline fun <reified T> decodeValue(value: Any?): T = decodeValue(storeModule.serializer<T>(), value)

/** Returns a value of the language of an object, such as for a parameter. */
public inline fun <reified T> encodeValue(value: T): Any? = encodeValue(storeModule.serializer<T>(), value)

/** Runs a script and returns the value of its last statement as an object. The arguments are those of [Runner.run]. */
public suspend inline fun <reified T> Runner.queryAs(
    script: String,
    params: Map<String, Any?> = emptyMap(),
    timeout: Duration? = null,
    repeatable: Boolean = false,
    after: Long? = null,
    current: Boolean = false,
): T = decodeValue(query(script, params, timeout = timeout, repeatable = repeatable, after = after, current = current))

/** Returns the rows of a SELECT from one table as objects; see [Runner.rows]. */
public inline fun <reified T> Runner.rowsAs(select: String, params: Map<String, Any?> = emptyMap(), page: Int = 1000): Flow<T> =
    rows(select, params, page).map { decodeValue(it) }

/** Returns the value of the last statement as an object. */
public inline fun <reified T> Answer.valueAs(): T = decodeValue(value)

/** Returns the value of a message as an object. */
public inline fun <reified T> Message.valueAs(): T = decodeValue(value)

/** Returns the record after the commit as an object; null if it was deleted. */
public inline fun <reified T : Any> Change.valueAs(): T? = value?.let { decodeValue<T>(it) }

/** Returns a row as an object. */
public inline fun <reified T> Row.decode(): T = decodeValue(this)

/** Returns the value of a key as an object; null: there is no such key. */
public suspend inline fun <reified T : Any> Cache.getAs(key: String): T? = get(key)?.let { decodeValue<T>(it) }

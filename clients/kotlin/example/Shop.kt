// A small shop: a queue of orders with a pool of workers, a cached page, and a live list.
//
// mvn -q test-compile && java -cp build/classes:build/test-classes:$(cat build/classpath) ShopKt 127.0.0.1:8001 root PASSWORD [ORDERS]

import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.Contextual
import kotlinx.serialization.Serializable
import storeclient.Client
import storeclient.Code
import storeclient.Consumer
import storeclient.Database
import storeclient.Delivery
import storeclient.RecordId
import storeclient.RefusedException
import storeclient.isRefused
import storeclient.serialization.decodeValue
import storeclient.serialization.encodeValue
import storeclient.serialization.queryAs
import storeclient.serialization.valueAs
import storeclient.use
import java.util.concurrent.atomic.AtomicInteger
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.minutes

@Serializable
data class Item(val id: @Contextual RecordId, val name: String, val stock: Long)

@Serializable
data class Order(val item: @Contextual RecordId, val count: Int)

private const val WORKERS = 4

private suspend fun define(client: Client): Database {
    client.run(
        """
        DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.example; USE shop.example;
        DEFINE TABLE IF NOT EXISTS item; DEFINE TABLE IF NOT EXISTS sold; DEFINE SPACE IF NOT EXISTS pages;
        DEFINE TOPIC IF NOT EXISTS orders; DEFINE GROUP IF NOT EXISTS packers ON orders DEADLINE 10s;
        UPSERT item:1 SET name = 'lamp', stock = 1000; UPSERT item:2 SET name = 'desk', stock = 1000; DELETE sold
        """.trimIndent(),
    )
    return client.database("shop", "example")
}

/** Packs an order: the stock, the sale and the acknowledgement change in one transaction. */
private suspend fun pack(message: Delivery): Boolean {
    val (item, count) = message.valueAs<Order>()
    try {
        val script = "UPDATE \$item SET stock = stock - \$count; CREATE sold SET item = \$item, count = \$count"
        return message.done(script, mapOf("item" to item, "count" to count)) != null
    } catch (error: RefusedException) {
        if (!error.isRefused(Code.CONFLICT)) throw error
        message.nack(delay = 50.milliseconds) // another worker sells the same item
        return false
    }
}

/** Works on orders with a pool until so many are packed. */
private suspend fun work(consumer: Consumer, orders: Int) {
    val packed = AtomicInteger()
    coroutineScope {
        repeat(WORKERS) {
            launch {
                while (true) {
                    val message = consumer.next() ?: break
                    if (pack(message) && packed.incrementAndGet() == orders) consumer.stop() // and with it the other workers
                }
            }
        }
    }
}

/** Returns the page of an item, made once a minute. */
private suspend fun page(db: Database, id: RecordId): Any? =
    db.cache("pages").getOrSet("item/$id", ttl = 1.minutes) {
        val item = db.queryAs<Item>("SELECT * FROM ONLY \$id", mapOf("id" to id))
        "<h1>${item.name}</h1><p>${item.stock} left</p>"
    }

/** Prints the list of items whenever it changes. */
private suspend fun list(db: Database): Unit =
    db.mirror("item").use { items ->
        var seq = -1L
        while (true) {
            if (seq != items.seq) println(items.rows().map { decodeValue<Item>(it) }.joinToString { "${it.name}: ${it.stock}" })
            seq = items.seq
            items.changed(seq)
        }
    }

fun main(words: Array<String>): Unit =
    runBlocking {
        val address = words.getOrElse(0) { "127.0.0.1:8001" }
        val user = words.getOrElse(1) { "root" }
        val orders = words.getOrElse(3) { "20" }.toInt()
        Client(address, user = user, password = words.getOrElse(2) { "" }).use { client ->
            val db = define(client)
            val items = db.queryAs<List<Item>>("SELECT * FROM item ORDER BY id")
            val listing = launch { list(db) }
            db.topic("orders").publishMany(List(orders) { encodeValue(Order(items[it % items.size].id, count = 1)) })
            db.topic("orders").group("packers").consumer(prefetch = 2 * WORKERS, extend = true).use { work(it, orders) }
            for (item in items) println(page(db, item.id))
            listing.cancelAndJoin()
            println("${db.query("SELECT VALUE count() FROM ONLY sold GROUP ALL")} sold")
        }
    }

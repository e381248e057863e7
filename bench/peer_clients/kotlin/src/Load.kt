// Load on Redis through lettuce: `LoadKt PORT`, see bench/peer_clients/README.md.

import io.lettuce.core.ExperimentalLettuceCoroutinesApi
import io.lettuce.core.Limit
import io.lettuce.core.Range
import io.lettuce.core.RedisClient
import io.lettuce.core.RedisURI
import io.lettuce.core.api.StatefulRedisConnection
import io.lettuce.core.api.coroutines
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.future.await
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking

private const val KEYS = 1000
private const val PAGE = 1000L

private typealias Connection = StatefulRedisConnection<String, String>

private val FIELD = Regex("\"(\\w+)\": ?\"?(\\w+)")

fun main(words: Array<String>) {
    val client = RedisClient.create(RedisURI.create("127.0.0.1", words[0].toInt()))
    val connection = client.connect()
    generateSequence(::readLine).forEach { line ->
        val asked = FIELD.findAll(line).associate { it.groupValues[1] to it.groupValues[2] }
        runBlocking { load(connection, asked.getValue("operation"), asked.getValue("depth").toInt(), asked.getValue("count").toInt()) }
        println("{}")
    }
    client.shutdown()
}

@OptIn(ExperimentalLettuceCoroutinesApi::class)
private suspend fun load(connection: Connection, operation: String, depth: Int, count: Int) {
    val commands = connection.coroutines()
    val work: (suspend (Int) -> Any?)? =
        when (operation) {
            "get" -> { n -> commands.get("k${n % KEYS}") }
            "set" -> { n -> commands.set("k${n % KEYS}", n.toString()) }
            "publish" -> { n -> commands.xadd("topic", mapOf("value" to n.toString())) }
            else -> null
        }
    var next = 0
    if (work == null) {
        next = rows(connection)
    } else {
        coroutineScope { repeat(depth) { launch { while (next < count) work(next++) } } }
    }
    check(next == count) { "there are $next rows" }
}

/** Reads all rows. As a Flow, an XRANGE may wait for ever: https://github.com/redis/lettuce/issues/1837. */
private suspend fun rows(connection: Connection): Int {
    val commands = connection.async()
    var count = 0
    var begin: Range.Boundary<String> = Range.Boundary.unbounded()
    while (true) {
        val page = commands.xrange("rows", Range.from(begin, Range.Boundary.unbounded()), Limit.from(PAGE)).await()
        val last = page.lastOrNull() ?: return count
        count += page.size
        begin = Range.Boundary.excluding(last.id)
    }
}

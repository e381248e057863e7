// Load on Redis through lettuce: `LoadKt PORT`, see bench/peer_clients/README.md.

import com.sun.management.OperatingSystemMXBean
import io.lettuce.core.ExperimentalLettuceCoroutinesApi
import io.lettuce.core.Limit
import io.lettuce.core.Range
import io.lettuce.core.RedisClient
import io.lettuce.core.RedisURI
import io.lettuce.core.api.coroutines
import io.lettuce.core.api.coroutines.RedisCoroutinesCommands
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import java.lang.management.ManagementFactory

private const val KEYS = 1000
private const val PAGE = 1000L

@OptIn(ExperimentalLettuceCoroutinesApi::class)
private typealias Commands = RedisCoroutinesCommands<String, String>

private val FIELD = Regex("\"(\\w+)\": ?\"?(\\w+)")

@OptIn(ExperimentalLettuceCoroutinesApi::class)
fun main(words: Array<String>) {
    val client = RedisClient.create(RedisURI.create("127.0.0.1", words[0].toInt()))
    val commands = client.connect().coroutines()
    generateSequence(::readLine).forEach { line ->
        val asked = FIELD.findAll(line).associate { it.groupValues[1] to it.groupValues[2] }
        println(runBlocking { load(commands, asked.getValue("operation"), asked.getValue("depth").toInt(), asked.getValue("count").toInt()) })
    }
    client.shutdown()
}

@OptIn(ExperimentalLettuceCoroutinesApi::class)
private suspend fun load(commands: Commands, operation: String, depth: Int, count: Int): String {
    val work: (suspend (Int) -> Any?)? =
        when (operation) {
            "get" -> { n -> commands.get("k${n % KEYS}") }
            "set" -> { n -> commands.set("k${n % KEYS}", n.toString()) }
            "publish" -> { n -> commands.xadd("topic", mapOf("value" to n.toString())) }
            else -> null
        }
    val system = ManagementFactory.getOperatingSystemMXBean() as OperatingSystemMXBean
    val (before, begun) = system.processCpuTime to System.nanoTime()
    var next = 0
    if (work == null) {
        next = rows(commands)
    } else {
        coroutineScope { repeat(depth) { launch { while (next < count) work(next++) } } }
    }
    check(next == count) { "there are $next rows" }
    return "{\"seconds\": ${(System.nanoTime() - begun) / 1e9}, \"processor\": ${(system.processCpuTime - before) / 1e9}}"
}

@OptIn(ExperimentalLettuceCoroutinesApi::class)
private suspend fun rows(commands: Commands): Int {
    var count = 0
    var begin: Range.Boundary<String> = Range.Boundary.unbounded()
    while (true) {
        val page = commands.xrange("rows", Range.from(begin, Range.Boundary.unbounded()), Limit.from(PAGE)).toList()
        val last = page.lastOrNull() ?: return count
        count += page.size
        begin = Range.Boundary.excluding(last.id)
    }
}

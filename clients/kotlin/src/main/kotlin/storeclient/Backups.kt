package storeclient

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.runInterruptible
import kotlinx.coroutines.withContext
import java.io.OutputStream
import java.nio.channels.Channels
import java.nio.channels.FileChannel
import java.nio.file.FileAlreadyExistsException
import java.nio.file.Files
import java.nio.file.LinkOption
import java.nio.file.Path
import java.nio.file.StandardOpenOption
import java.nio.file.attribute.PosixFilePermissions
import java.util.UUID
import kotlin.io.path.absolute
import kotlin.io.path.name

/** Parts of a backup that are held; a part has at most 1 MiB. Past them nothing is read. */
private const val PARTS_MOST = 8

internal class BackupScope(val ns: String?, val db: String?, val reason: String?, val onProgress: ((Long, Long) -> Unit)?) {
    val statement: String get() =
        when {
            db != null -> "BACKUP OF ${quoteName(ns.orEmpty())}.${quoteName(db)}"
            ns != null -> "BACKUP OF NAMESPACE ${quoteName(ns)}"
            else -> "BACKUP"
        }
}

/**
 * A snapshot that was taken.
 *
 * @property bytes size of the snapshot
 * @property form form of the snapshot
 * @property records number of records of tables
 * @property version version of the node
 */
public data class BackupFile(val bytes: Long, val form: String, val records: Long, val version: String)

/** The parts of one snapshot, as they come. */
private class Parts(private val conn: Connection) : Call(Kind.RUN) {
    private val coming = ArrayDeque<Row>()
    private var isOver = false
    private var answer: Answer? = null
    private var failure: Throwable? = null
    private val news = News()

    override fun onMessage(body: Row, size: Int): Boolean {
        synchronized(coming) {
            coming.add(body)
            if (coming.size >= PARTS_MOST) conn.exchange.stall(true)
        }
        news.announce()
        return true
    }

    override fun settle(reply: Any?, error: Throwable?) {
        synchronized(coming) {
            isOver = true
            answer = reply as Answer?
            failure = error
        }
        news.announce()
    }

    /** Returns the next part; null: the answer has come. */
    suspend fun next(): Row? {
        while (true) {
            synchronized(coming) {
                coming.removeFirstOrNull()?.let {
                    if (coming.isEmpty() && conn.exchange.isStalled) conn.exchange.stall(false)
                    return it
                }
                if (isOver) return failure?.let { throw if (it is NotSent) unsent() else it }
            }
            news.await { synchronized(coming) { coming.isNotEmpty() || isOver } }
        }
    }

    private fun unsent() = unreached("the connection ended before anything was sent", conn.cause)

    fun answer(): Answer = synchronized(coming) { answer } ?: throw broken("the snapshot has no answer")
}

/** Writes a snapshot to a stream. */
internal suspend fun backupTo(client: Client, to: OutputStream, scope: BackupScope): BackupFile =
    client.nodes.withOwn { conn ->
        checkMinor(conn, MINOR_OF_STREAMS, "streams")
        val parts = Parts(conn)
        conn.begin(parts, packBody(Body("script", scope.statement, "stream", true, "reason", scope.reason)))
        var done = 0L
        var total = 0L
        while (true) {
            val part = parts.next() ?: break
            val bytes = part.needed<ByteArray>("bytes")
            total = part.needed("total")
            done += bytes.size
            if (part.needed<Long>("done") != done || done > total) throw broken("a part of the snapshot is missing")
            runInterruptible(Dispatchers.IO) { to.write(bytes) }
            scope.onProgress?.invoke(done, total)
        }
        if (done == 0L || done != total) throw broken("the snapshot ended before its last part")
        val told = infoOf(parts.answer().value)
        BackupFile(done, told.needed("form"), told.needed("records"), told.needed("version"))
    }

private val PERMISSIONS = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"))

/** Writes a snapshot to a new file. */
internal suspend fun backupToFile(client: Client, path: Path, scope: BackupScope): BackupFile {
    val folder = path.absolute().parent
    val partial = folder.resolve("${path.name}.${UUID.randomUUID()}.partial")
    val file = withContext(Dispatchers.IO) { create(path, partial) }
    try {
        return file.use {
            val found = backupTo(client, Channels.newOutputStream(it), scope)
            withContext(Dispatchers.IO) {
                it.force(true)
                Files.createLink(path, partial) // a link replaces nothing
                FileChannel.open(folder, StandardOpenOption.READ).use { opened -> opened.force(true) }
            }
            found
        }
    } finally {
        withContext(NonCancellable + Dispatchers.IO) { Files.delete(partial) }
    }
}

private fun create(path: Path, partial: Path): FileChannel {
    if (Files.exists(path, LinkOption.NOFOLLOW_LINKS)) throw FileAlreadyExistsException(path.toString())
    val attributes = if ("posix" in path.fileSystem.supportedFileAttributeViews()) arrayOf(PERMISSIONS) else emptyArray()
    return FileChannel.open(partial, setOf(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE), *attributes)
}

package storeclient

import kotlinx.coroutines.Job
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.delay
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.update
import kotlinx.coroutines.withTimeoutOrNull
import kotlin.random.Random
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

private const val LEAST_PART = 0.5

/** Pause between attempts: longer each time, and somewhat at random. */
internal class Backoff(private val least: Duration, private val most: Duration) {
    private var next = least

    fun step(): Duration {
        val now = next * Random.nextDouble(LEAST_PART, 1.0)
        next = minOf(next * 2, most)
        return now
    }

    fun reset() {
        next = least
    }

    /** Waits until the next attempt, or until [stop] is over. */
    suspend fun pause(stop: Job? = null) {
        pause(step(), stop)
    }
}

/** Returns the pause between attempts of a request. */
internal fun retryBackoff(): Backoff = Backoff(50.milliseconds, 5.seconds)

/** Waits for a time, or until [stop] is over. */
internal suspend fun pause(time: Duration, stop: Job? = null) {
    if (stop == null) delay(time) else withTimeoutOrNull(time) { stop.join() }
    currentCoroutineContext().ensureActive()
}

/** True if the job has come to its end, or is about to. */
internal val Job.isStopped: Boolean get() = !isActive

/** A condition that several wait for: each change wakes all of them. */
internal class News {
    private val version = MutableStateFlow(0L)

    fun announce() {
        version.update { it + 1 }
    }

    /** Waits until a condition is met. It is looked at after each change. */
    suspend fun await(isMet: () -> Boolean) {
        if (!isMet()) version.first { isMet() }
    }
}

/** A handle that is closed by a suspending call. */
public interface Closeable {
    /** Closes the handle. */
    public suspend fun close()
}

/** Runs a block with a handle, and closes it behind the block, also where that fails or is cancelled. */
public suspend inline fun <T : Closeable, R> T.use(block: (T) -> R): R {
    var failure: Throwable? = null
    try {
        return block(this)
    } catch (error: Throwable) {
        failure = error
        throw error
    } finally {
        closeAfter(failure)
    }
}

@PublishedApi
internal suspend fun Closeable.closeAfter(failure: Throwable?) {
    kotlinx.coroutines.withContext(kotlinx.coroutines.NonCancellable) {
        try {
            close()
        } catch (error: StoreException) {
            if (failure == null) throw error
            failure.addSuppressed(error)
        }
    }
}

"""NATS JetStream as a message queue: a separate server, driven through its usual client library.

A stream on files with one durable pull consumer. There are two configurations: `sync_interval:
always` syncs every message before it is answered, as the node does; the default answers first and
syncs every two minutes. An acknowledgement counts once the server has confirmed it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.drivers import Driven, Go, LoadFailed, Stopwatch
from bench.ports import free_port
from bench.processes import serving
from bench.queues import AT_REST_SECONDS, MESSAGE, QueueSide, Share

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

PACKAGE: Final = "nats"
SERVER: Final = "nats-server"
STREAM: Final = "work"
WORKERS: Final = "workers"
BODY: Final = MESSAGE.encode()
DRIVERS: Final = 4
"""Driver processes: the client library takes more time than the server, so one is not enough."""
WAIT_SECONDS: Final = 60
FILL: Final = 1_000
"""Messages of one batch while a stream is filled."""
READ: Final = 1_000
SYNCED: Final = "JetStream, sync_interval: always"
DEFAULT: Final = "JetStream, default (synced later)"
ATOMIC: Final = "JetStream, sync_interval: always, atomic batch"
SYNC_INTERVALS: Final = {SYNCED: "always", DEFAULT: "2m"}


def missing() -> str | None:
    """Return the reason why NATS can't run on this machine, or None."""
    if importlib.util.find_spec(PACKAGE) is None:
        return "the package nats-py is not installed (pip install '.[bench]')"
    server = server_path()
    if server is None:
        return "nats-server is not installed (pip install '.[bench]')"
    return _too_old(server)


def server_path() -> str | None:
    """Return the server that came with the Python package, else the system's."""
    return shutil.which(SERVER, path=str(Path(sys.executable).parent)) or shutil.which(SERVER)


def _too_old(server: str) -> str | None:
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in said.rpartition("v")[2].split(".")[:2])
    if version < (2, 12):
        return f"{said.strip()} knows no sync_interval: always, or no atomic batch (2.12 does)"
    return None


@contextmanager
def jetstream(directory: Path, name: str) -> Iterator[QueueSide]:
    """Serve with one of `SYNC_INTERVALS`."""
    server, port = server_path(), free_port()
    assert server is not None, "ask what is missing first"
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "settings"
    settings.write_text(
        f"listen: 127.0.0.1:{port}\n"
        f'jetstream {{ store_dir: "{directory}", sync_interval: {SYNC_INTERVALS[name]} }}\n'
    )
    address = f"nats://127.0.0.1:{port}"
    with serving(directory, port, server, "-c", str(settings)):
        yield QueueSide(
            name, address, partial(_refill, address), publish, take, pass_on, read, DRIVERS
        )


def atomic(queue: QueueSide) -> QueueSide:
    """Serve the same stream; a batch of messages is kept as a whole or not at all."""
    return QueueSide(
        ATOMIC, queue.address, queue.refill, publish_atomic, take, pass_on, read, DRIVERS
    )


def _refill(address: str, count: int) -> None:
    asyncio.run(_fill(address, count))


async def _fill(address: str, count: int) -> None:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
    from nats.js.errors import NotFoundError

    connection = await nats.connect(address)
    try:
        stream = connection.jetstream()
        with suppress(NotFoundError):  # the first time
            await stream.delete_stream(STREAM)
        await stream.add_stream(StreamConfig(name=STREAM, subjects=[STREAM], allow_atomic=True))
        await stream.add_consumer(
            STREAM,
            ConsumerConfig(
                durable_name=WORKERS,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=300,
                max_ack_pending=10_000,
            ),
        )
        for start in range(0, count, FILL):
            await _send_batch(connection, min(FILL, count - start))
    finally:
        await connection.close()


# --- in the driver's process ----------------------------------------------------------------------

Worker = Callable[["JetStreamContext", list[float]], Awaitable[None]]


def publish(share: Share, go: Go) -> Driven:
    """Publish. A batch is sent whole before its answers are awaited."""

    async def worker(stream: JetStreamContext, took: list[float]) -> None:
        for _ in range(share.requests):
            began = time.perf_counter()
            if share.batch == 1:
                await stream.publish(STREAM, BODY, timeout=WAIT_SECONDS)
            else:
                sent = [await stream.publish_async(STREAM, BODY) for _ in range(share.batch)]
                await asyncio.gather(*sent)
            took.append(time.perf_counter() - began)

    return asyncio.run(_drive(share, go, worker))


def publish_atomic(share: Share, go: Go) -> Driven:
    """Publish a batch atomically: the server answers the last message, for all of them."""

    async def worker(stream: JetStreamContext, took: list[float]) -> None:
        connection: Client = stream._nc
        for _ in range(share.requests):
            began = time.perf_counter()
            await _send_batch(connection, share.batch)
            took.append(time.perf_counter() - began)

    return asyncio.run(_drive(share, go, worker))


async def _send_batch(connection: Client, count: int) -> None:
    batch = {"Nats-Batch-Id": connection.new_inbox()[-22:]}
    for number in range(1, count):
        headers = {**batch, "Nats-Batch-Sequence": str(number)}
        await connection.publish(STREAM, BODY, headers=headers)
    last = {**batch, "Nats-Batch-Sequence": str(count), "Nats-Batch-Commit": "1"}
    answer = await connection.request(STREAM, BODY, WAIT_SECONDS, headers=last)
    if b'"error"' in answer.data:
        raise LoadFailed(answer.data.decode())


def take(share: Share, go: Go) -> Driven:
    """Take and acknowledge."""

    async def worker(stream: JetStreamContext, took: list[float]) -> None:
        messages = await stream.pull_subscribe_bind(WORKERS, STREAM)
        for _ in range(share.requests):
            began = time.perf_counter()
            left = share.batch
            while left:  # the server may answer with fewer
                found = await messages.fetch(left, timeout=WAIT_SECONDS)
                left -= len(found)
                await asyncio.gather(*(one.ack_sync(timeout=WAIT_SECONDS) for one in found))
            took.append(time.perf_counter() - began)

    return asyncio.run(_drive(share, go, worker))


def read(share: Share, go: Go) -> Driven:
    """Read through a separate consumer that acknowledges nothing."""
    from nats.js.api import AckPolicy, ConsumerConfig

    async def worker(stream: JetStreamContext, took: list[float]) -> None:
        reading = ConsumerConfig(ack_policy=AckPolicy.NONE)
        messages = await stream.pull_subscribe(STREAM, config=reading)
        for _ in range(share.requests):
            began = time.perf_counter()
            left = READ
            while left:
                left -= len(await messages.fetch(left, timeout=WAIT_SECONDS))
            took.append(time.perf_counter() - began)

    return asyncio.run(_drive(share, go, worker))


def pass_on(share: Share, go: Go) -> Driven:
    """Pass messages on. Taker and publisher have a connection each."""
    import nats

    async def worker(stream: JetStreamContext, took: list[float]) -> None:
        publisher = await nats.connect(share.address)
        messages = await stream.pull_subscribe_bind(WORKERS, STREAM)
        for _ in range(share.requests):
            taking = asyncio.create_task(_fetch_one(messages))
            await asyncio.sleep(AT_REST_SECONDS)
            began = time.perf_counter()
            publishing = asyncio.create_task(publisher.jetstream().publish(STREAM, BODY))
            message, ended = await taking
            took.append(ended - began)
            await publishing
            await message.ack_sync(timeout=WAIT_SECONDS)
        await publisher.close()

    return asyncio.run(_drive(share, go, worker))


async def _fetch_one(messages: Any) -> tuple[Any, float]:
    found = await messages.fetch(1, timeout=WAIT_SECONDS)
    return found[0], time.perf_counter()


async def _drive(share: Share, go: Go, worker: Worker) -> Driven:
    """Run so many clients at once, each on its own connection."""
    import nats

    connections = [await nats.connect(share.address) for _ in range(share.clients)]
    took: list[float] = []
    go()
    with Stopwatch() as watch:
        await asyncio.gather(*(worker(one.jetstream(), took) for one in connections))
    for one in connections:
        await one.close()
    return watch.driven(took)

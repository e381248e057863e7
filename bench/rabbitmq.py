"""RabbitMQ as a message queue: a separate broker with a quorum queue, and the client pika.

A quorum queue's log is synced before a publish is confirmed, as the node's is. An acknowledgement
is not answered, so a request of a worker ends when it is sent. Its queues can't be read without
taking from them.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.drivers import Driven, Go, LoadFailed, Stopwatch
from bench.ports import free_port
from bench.processes import serving
from bench.queues import AT_REST_SECONDS, MESSAGE, QueueSide, Share

if TYPE_CHECKING:
    from pika.adapters.asyncio_connection import AsyncioConnection
    from pika.channel import Channel

NAME: Final = "RabbitMQ quorum queue"
PACKAGE: Final = "pika"
SERVER: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Not the command in the path: that one requires the system's user and directories."""
QUEUE: Final = "work"
BODY: Final = MESSAGE.encode()
DRIVERS: Final = 4
"""Driver processes: the client library takes more time than the broker, so one is not enough."""
FILL: Final = 1_000


def missing() -> str | None:
    """Return the reason why RabbitMQ can't run on this machine, or None."""
    if importlib.util.find_spec(PACKAGE) is None:
        return "the package pika is not installed (pip install '.[bench]')"
    if not Path(SERVER).exists() or shutil.which("epmd") is None:
        return "rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    return None


@contextmanager
def rabbitmq(directory: Path) -> Iterator[QueueSide]:
    """Run the broker; its files and those of Erlang's name server stay in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    names, port = free_port(), free_port()
    settings = directory / "settings.conf"
    settings.write_text(f"listeners.tcp.default = 127.0.0.1:{port}\nlog.console = true\n")
    environment = {
        **os.environ,
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(settings),
        "RABBITMQ_MNESIA_BASE": str(directory / "queues"),
        "RABBITMQ_LOG_BASE": str(directory / "logs"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
    }
    with ExitStack() as held:
        for words, at in (
            (("epmd", "-port", str(names), "-address", "127.0.0.1"), names),
            ((SERVER,), port),
        ):
            where = directory / Path(words[0]).name
            held.enter_context(serving(where, at, *words, environment=environment))
        refill = partial(_refill, str(port))
        yield QueueSide(NAME, str(port), refill, publish, take, pass_on, None, DRIVERS)


def _refill(address: str, count: int) -> None:
    asyncio.run(_fill(address, count))


async def _fill(address: str, count: int) -> None:
    connection = await _connect(address)
    channel = await _channel(connection)
    await _asked(partial(channel.queue_delete, QUEUE))
    kind = {"x-queue-type": "quorum"}
    await _asked(partial(channel.queue_declare, QUEUE, durable=True, arguments=kind))
    confirms = await _Confirms.of(channel)
    for start in range(0, count, FILL):
        await confirms.publish(min(FILL, count - start))
    await _close(connection)


# --- in the driver's process ----------------------------------------------------------------------

Worker = Callable[["Channel", list[float]], Awaitable[None]]


def publish(share: Share, go: Go) -> Driven:
    """Publish. A batch is sent whole before its confirms are awaited."""

    async def worker(channel: Channel, took: list[float]) -> None:
        confirms = await _Confirms.of(channel)
        for _ in range(share.requests):
            began = time.perf_counter()
            await confirms.publish(share.batch)
            took.append(time.perf_counter() - began)

    return asyncio.run(_drive(share, go, worker))


def take(share: Share, go: Go) -> Driven:
    """Take and acknowledge. The broker delivers a batch, and the next after its acknowledgement."""

    async def worker(channel: Channel, took: list[float]) -> None:
        deliveries = await _Deliveries.of(channel, share.batch)
        for _ in range(share.requests):
            began = time.perf_counter()
            for _ in range(share.batch):
                tag = await deliveries.next()
            channel.basic_ack(tag, multiple=True)
            took.append(time.perf_counter() - began)
        await deliveries.cancel()

    return asyncio.run(_drive(share, go, worker))


def pass_on(share: Share, go: Go) -> Driven:
    """Pass messages on. Taker and publisher have a connection each."""

    async def worker(channel: Channel, took: list[float]) -> None:
        connection = await _connect(share.address)
        confirms = await _Confirms.of(await _channel(connection))
        deliveries = await _Deliveries.of(channel, 1)
        for _ in range(share.requests):
            await asyncio.sleep(AT_REST_SECONDS)
            began = time.perf_counter()
            publishing = asyncio.create_task(confirms.publish(1))
            tag = await deliveries.next()
            took.append(deliveries.came_at - began)
            await publishing
            channel.basic_ack(tag)
        await deliveries.cancel()
        await _close(connection)

    return asyncio.run(_drive(share, go, worker))


async def _drive(share: Share, go: Go, worker: Worker) -> Driven:
    """Run so many clients at once, each on its own connection."""
    connections = [await _connect(share.address) for _ in range(share.clients)]
    channels = [await _channel(one) for one in connections]
    took: list[float] = []
    go()
    with Stopwatch() as watch:
        await asyncio.gather(*(worker(channel, took) for channel in channels))
    for one in connections:
        await _close(one)
    return watch.driven(took)


class _Confirms:
    """A channel whose publishes are confirmed."""

    def __init__(self, channel: Channel) -> None:
        from pika import BasicProperties

        self._channel = channel
        self._kept = BasicProperties(delivery_mode=2)
        self._sent = 0
        self._confirmed: set[int] = set()
        self._through = 0
        """Highest delivery tag up to which all publishes are confirmed."""
        self._waiting: asyncio.Future[None] | None = None

    @classmethod
    async def of(cls, channel: Channel) -> _Confirms:
        made = cls(channel)
        await _asked(partial(channel.confirm_delivery, made._take))
        return made

    async def publish(self, count: int) -> None:
        """Publish so many messages and wait until all are confirmed."""
        for _ in range(count):
            self._channel.basic_publish("", QUEUE, BODY, self._kept)
        self._sent += count
        if self._through < self._sent:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def _take(self, frame: Any) -> None:
        method = frame.method
        if method.NAME != "Basic.Ack" and self._waiting is not None:
            self._waiting.set_exception(LoadFailed("the broker did not keep a message"))
            return
        if method.multiple:
            self._through = max(self._through, method.delivery_tag)
        else:
            self._confirmed.add(method.delivery_tag)
        while self._through + 1 in self._confirmed:
            self._through += 1
            self._confirmed.discard(self._through)
        if self._through >= self._sent and self._waiting and not self._waiting.done():
            self._waiting.set_result(None)


class _Deliveries:
    """Deliveries of a broker to one consumer."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._tags: asyncio.Queue[int] = asyncio.Queue()
        self._consumer = ""
        self.came_at = 0.0
        """Time of the last delivery."""

    @classmethod
    async def of(cls, channel: Channel, ahead: int) -> _Deliveries:
        """:param ahead: prefetch, the most messages it may hold unacknowledged"""
        made = cls(channel)
        await _asked(partial(channel.basic_qos, prefetch_count=ahead))
        consuming = partial(channel.basic_consume, QUEUE, made._take)
        answer = await _asked(consuming)
        made._consumer = answer.method.consumer_tag
        return made

    async def next(self) -> int:
        """Return the tag of the next message."""
        return await self._tags.get()

    async def cancel(self) -> None:
        """Cancel the consumer."""
        await _asked(partial(self._channel.basic_cancel, self._consumer))

    def _take(self, _channel: object, method: Any, _properties: object, _body: bytes) -> None:
        self.came_at = time.perf_counter()
        self._tags.put_nowait(method.delivery_tag)


async def _asked(ask: Callable[..., object]) -> Any:
    """Send a request to the broker and wait for its answer."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(callback=answered.set_result)
    return await answered


async def _connect(address: str) -> AsyncioConnection:
    from pika import ConnectionParameters
    from pika.adapters.asyncio_connection import AsyncioConnection

    opened: asyncio.Future[AsyncioConnection] = asyncio.get_running_loop().create_future()
    AsyncioConnection(
        ConnectionParameters("127.0.0.1", int(address)),
        on_open_callback=opened.set_result,
        on_open_error_callback=lambda _, error: opened.set_exception(LoadFailed(str(error))),
    )
    return await opened


async def _channel(connection: AsyncioConnection) -> Channel:
    opened: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()
    connection.channel(on_open_callback=opened.set_result)
    return await opened


async def _close(connection: AsyncioConnection) -> None:
    closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    connection.add_on_close_callback(lambda *_: closed.set_result(None))
    connection.close()
    await closed

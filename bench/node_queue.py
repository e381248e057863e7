"""The node's topics as a message queue: raw frames over the wire, as TOPIC requests except for
reads."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

from bench.drivers import Driven, Go, LoadFailed, Stopwatch
from bench.figures import NODE
from bench.load import LATE_SECONDS, RECEIVE_BYTES, connect_wire
from bench.nodes import DATABASE, NAMESPACE, NodeProcess
from bench.queues import AT_REST_SECONDS, MESSAGE, QueueSide, Share
from storeclient import errors
from storeclient.answers import read_answer
from storeclient.frames import FrameReader, Kind, encode

TOPIC: Final = "work"
GROUP: Final = "workers"
FILL_WITH: Final = f"PUBLISH INTO {TOPIC} VALUES $v"
READ: Final = f"READ FROM {TOPIC} AFTER $after LIMIT 1000"
FILL: Final = 10_000
"""Messages of one PUBLISH while a topic is filled."""


def node_queue(node: NodeProcess) -> QueueSide:
    """Return the queue of a node whose database is defined."""
    return QueueSide(
        NODE,
        node.wire,
        partial(_refill, node),
        publish,
        take,
        pass_on,
        read,
        cpu_seconds=node.cpu_seconds,
    )


def _refill(node: NodeProcess, count: int) -> None:
    with node.client() as client:
        with suppress(errors.Unknown):  # the first time
            client.run(f"DROP TOPIC {TOPIC}")
        client.run(f"DEFINE TOPIC {TOPIC}")
        client.run(f"DEFINE GROUP {GROUP} ON {TOPIC} DEADLINE 5m IN FLIGHT 10000")
        for start in range(0, count, FILL):
            values = [MESSAGE] * min(FILL, count - start)
            client.run(FILL_WITH, {"v": values})


# --- in the driver's process ----------------------------------------------------------------------

Client = Generator[bytes, Any, None]
"""Generator that yields requests and is sent the values of their answers."""


def publish(share: Share, go: Go) -> Driven:
    """Publish batches."""
    if share.batch == 1:
        request = _topic("publish", value=MESSAGE)
    else:
        request = _topic("publish", values=[MESSAGE] * share.batch)

    def client(took: list[float]) -> Client:
        for _ in range(share.requests):
            began = time.perf_counter()
            yield request
            took.append(time.perf_counter() - began)

    return _drive(share, go, client)


def take(share: Share, go: Go) -> Driven:
    """Take and acknowledge."""
    taking = _topic("take", group=GROUP, count=share.batch)

    def client(took: list[float]) -> Client:
        for _ in range(share.requests):
            began = time.perf_counter()
            messages = (yield taking)["messages"]
            if len(messages) != share.batch:
                raise LoadFailed(f"{len(messages)} messages were there to take")
            receipts = [message["receipt"] for message in messages]
            answer = yield _topic("ack", group=GROUP, receipts=receipts)
            if answer["acked"] != share.batch:
                raise LoadFailed(f"not acknowledged: {answer}")
            took.append(time.perf_counter() - began)

    return _drive(share, go, client)


def read(share: Share, go: Go) -> Driven:
    """Read pages of the topic."""

    def client(took: list[float]) -> Client:
        after = 0
        for _ in range(share.requests):
            began = time.perf_counter()
            messages = yield _request(READ, {"after": after})
            took.append(time.perf_counter() - began)
            after = messages[-1]["position"]

    return _drive(share, go, client)


def pass_on(share: Share, go: Go) -> Driven:
    """Publish for a waiting worker."""
    taker, publisher = connect_wire(share.address), connect_wire(share.address)
    taking = _topic("take", group=GROUP, wait=timedelta(seconds=30))
    publishing = _topic("publish", value=MESSAGE)
    took = []
    go()
    with Stopwatch() as watch:
        for _ in range(share.requests):
            taker.sendall(taking)
            time.sleep(AT_REST_SECONDS)
            began = time.perf_counter()
            publisher.sendall(publishing)
            messages = _answered(taker)["messages"]
            took.append(time.perf_counter() - began)
            _answered(publisher)
            taker.sendall(_topic("ack", group=GROUP, receipts=[messages[0]["receipt"]]))
            _answered(taker)
    taker.close()
    publisher.close()
    return watch.driven(took)


def _topic(op: str, **fields: Any) -> bytes:
    body = {"op": op, "ns": NAMESPACE, "db": DATABASE, "topic": TOPIC, **fields}
    return encode(Kind.TOPIC, 1, body)


def _request(script: str, params: dict[str, Any]) -> bytes:
    body = {"script": script, "params": params, "ns": NAMESPACE, "db": DATABASE}
    return encode(Kind.RUN, 1, body)


def _answered(opened: socket.socket) -> Any:
    reader = FrameReader()
    while not (messages := reader.feed(opened.recv(RECEIVE_BYTES))):
        pass
    return _value(messages[0])


def _value(message: Any) -> Any:
    if message.kind == Kind.VALUE:
        return message.body
    if message.kind != Kind.ANSWER:
        raise LoadFailed(str(message.body))
    return read_answer(message.body).value


def _drive(share: Share, go: Go, client: Callable[[list[float]], Client]) -> Driven:
    """Run so many clients at once, each on its own connection."""
    took: list[float] = []
    opened = [connect_wire(share.address) for _ in range(share.clients)]
    go()
    with Stopwatch() as watch:
        poll = select.epoll()
        clients = {}
        for one in opened:
            poll.register(one, select.EPOLLIN)
            clients[one.fileno()] = (one, FrameReader(), running := client(took))
            one.sendall(next(running))
        while clients:
            ready = poll.poll(LATE_SECONDS)
            if not ready:
                raise LoadFailed(f"no answer within {LATE_SECONDS} s")
            for number, _ in ready:
                one, reader, running = clients[number]
                for message in reader.feed(one.recv(RECEIVE_BYTES)):
                    try:
                        one.sendall(running.send(_value(message)))
                    except StopIteration:
                        poll.unregister(number)
                        del clients[number]
    for one in opened:
        one.close()
    return watch.driven(took)

"""A client that sends exactly the bytes it is told to, and reads answers strictly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests import canaries

PATIENCE_SECONDS = 20


@dataclass(frozen=True)
class Answer:
    """One answer. `fields` by lower-case name; a name that stands twice is an error of ours."""

    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


class Raw:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None) -> Raw:
        name = "localhost" if tls is not None else None
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name))

    async def __aenter__(self) -> Raw:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):  # the node cut it, which is what some tests are about
            await self.writer.wait_closed()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def trickle(self, data: bytes, enough: Callable[[], bool] = lambda: False) -> None:
        """Send bytes one by one; stops when that is enough, or the node no longer takes them."""
        for number in range(len(data)):
            if enough():
                return
            try:
                await self.send(data[number : number + 1])
            except OSError:
                return
            await asyncio.sleep(0)

    async def answer(self, method: str = "GET") -> Answer:
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status, fields = parse_head(head)
            length = int(fields.get("content-length", "0"))
            if method == "HEAD" or status in (204, 304) or status < 200:
                length = 0
            body = await self.reader.readexactly(length)
            canaries.heard(head, "head of an answer")
            canaries.heard(body, "an answer")
            return Answer(status, fields, body)

    async def rest(self) -> bytes:
        found = bytearray()
        async with asyncio.timeout(PATIENCE_SECONDS):
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # what came counts
                while data := await self.reader.read(65_536):
                    found += data
        return bytes(found)

    async def ask(self, method: str, path: str, body: bytes = b"", /, **fields: str) -> Answer:
        """Send a well-formed request and read its answer. Fields: `content_type="…"`."""
        await self.send(request(method, path, body, **fields))
        return await self.answer(method)

    async def run(self, asked: str | Mapping[str, object], bearer: str, **fields: str) -> Answer:
        """Run a script: a text, or an object of JSON."""
        await self.send(script(asked, bearer, **fields))
        return await self.answer()

    async def post(self, path: str, value: object, bearer: str | None = None) -> Answer:
        """POST a value as JSON, or bytes in its place."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        who = {} if bearer is None else {"authorization": bearer}
        return await self.ask("POST", path, data, content_type="application/json", **who)


def request(method: str, path: str, body: bytes = b"", /, **fields: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def script(asked: str | Mapping[str, object], bearer: str, **fields: str) -> bytes:
    """A request that runs a script: its text, or an object of JSON."""
    kind, body = "text/plain", asked
    if not isinstance(body, str):
        kind, body = "application/json", json.dumps(body)
    fields.setdefault("content_type", kind)
    return request("POST", "/script", body.encode(), authorization=bearer, **fields)


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1", first
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        assert name.lower() not in fields, f"{name} stands twice"
        fields[name.lower()] = value
    return int(status), fields

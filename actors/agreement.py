"""Etcd client: the consensus store of a cluster, reached through etcd's JSON gateway.

No other module knows of etcd. `protocol.agreement.Agreement` is the interface that it implements:

| here | in etcd |
|---|---|
| `lead` | a key below the store's, with its lease; the leader epoch is its create revision |
| `insync` | the in-sync replicas: a key below the store's; its revision is its mod revision |
| `lineage` | a key below the store's: an epoch in figures |
| `released` | a key below the store's, after the range that is watched |
| a condition | one transaction, which reads all keys after its writes |
| identity of the agreement | `cluster_id` in the header of every response |

In the JSON, numbers travel as strings and keys in base64; a field that is 0 or false is omitted.
Refusals end in trailers, which Tornado's client takes for a broken response. So each request has a
connection of its own and is parsed by llhttp, as the node's own HTTP requests are.

A request that an endpoint cannot have received goes to the next endpoint. One that it may have
received, without answering, goes to another only if it is idempotent. Any other fails with
`NotAnswered`, with `perhaps` set.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

from actors import etcd_answers
from actors.etcd_releases import known
from protocol import limits
from protocol.addresses import is_loopback
from protocol.agreement import (
    AgreedState,
    Agreement,
    CompareAndSetResult,
    LeaseLapsed,
    NotAnswered,
    ReleasedFrame,
)

T = TypeVar("T")

ANSWER_BYTES: Final = limits.MIB
"""Limit of a response. Agreed values are short: a longer response does not come from etcd."""
GROWN_AT_ONCE: Final = 4
"""Concurrent writes of `grow`, which only raise the revision."""
CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 5.0
"""Timeout of one endpoint, short enough for the next one to answer within most leases."""
NOT_IN_CLEAR: Final = (
    "is sent only over https or to this machine: use https in VIA, or start with"
    " --etcd-login-in-clear"
)
_NOT_FOUND: Final = 5
_UNAUTHENTICATED: Final = 16
_TOKEN_ENDED: Final = (
    "invalid auth token",
    "revision of auth store is old",  # users, roles or permissions have changed since
    "user name is empty",  # authentication was enabled since
)
"""Messages of etcd 3.4 that mean an ended token but come with another gRPC code. The constants
above are the gRPC codes that this client distinguishes."""
_NO_USERS: Final = "authentication is not enabled"


class _Watch(NamedTuple):
    """Streaming response."""

    hear: Callable[[bytes], bool] | None
    """Receives each chunk of the body. Return True to end the request."""
    seconds: float


@dataclass(slots=True)
class EtcdCredentials:
    """Credentials for etcd. They may change while the node runs; the next request uses them."""

    credential: tuple[str, str] | None = field(default=None, repr=False)
    """User and password of etcd; None: it requires none."""
    tls: ssl.SSLContext | None = None
    """TLS settings for https endpoints; None: the system's trusted certificates."""
    in_clear: bool = False
    """True if user and password may go over plain http to other machines."""


class EtcdAgreement(Agreement):
    """Agreement kept in etcd.

    :param endpoints: `http://host:port` or `https://`, at least one; tried in turn
    """

    def __init__(
        self, endpoints: Sequence[str], store: str, access: EtcdCredentials | None = None
    ) -> None:
        self._endpoints = [endpoint.rstrip("/") for endpoint in endpoints]
        self._access = access or EtcdCredentials()
        self._system: ssl.SSLContext | None = None
        self._token: str | None = None
        self._lead = _key(store, "lead")
        self._insync = _key(store, "insync")
        self._lineage = _key(store, "lineage")
        self._released = _key(store, "released")
        # Without `released`, which changes every second or so: it would wake every watcher.
        self._watched = {"key": _key(store, ""), "range_end": self._released}

    async def read(self) -> AgreedState:
        return await self._ask(
            "/v3/kv/txn", {"success": self._all()}, etcd_answers.agreed, again=True
        )

    async def grant(self, seconds: int) -> int:
        # If the response is lost, the lease expires by itself.
        asked = {"TTL": str(seconds)}
        return await self._ask("/v3/lease/grant", asked, etcd_answers.granted, again=True)

    async def renew(self, lease: int) -> int:
        asked = {"ID": str(lease)}
        seconds = await self._ask("/v3/lease/keepalive", asked, etcd_answers.left, again=True)
        if seconds <= 0:
            raise LeaseLapsed(f"lease {lease:x} has lapsed")
        return seconds

    async def revoke(self, lease: int) -> None:
        with suppress(LeaseLapsed):
            await self._ask("/v3/lease/revoke", {"ID": str(lease)}, bool, again=True)

    async def found(self, members: frozenset[str]) -> CompareAndSetResult:
        absent = {"key": self._insync, "target": "CREATE", "create_revision": "0"}
        return await self._write([absent], _put(self._insync, _written(0, members)))

    async def take_lead(self, node: str, lease: int, insync: int) -> CompareAndSetResult:
        vacant = {"key": self._lead, "target": "CREATE", "create_revision": "0"}
        conditions = [vacant, self._of_revision(insync)]
        return await self._write(conditions, {**_put(self._lead, node), "lease": str(lease)})

    async def change(self, epoch: int, insync: int, members: frozenset[str]) -> CompareAndSetResult:
        return await self._write(
            self._led(epoch, insync), _put(self._insync, _written(epoch, members))
        )

    async def begin_lineage(self, epoch: int, insync: int, node: str) -> CompareAndSetResult:
        return await self._write(
            self._led(epoch, insync),
            _put(self._insync, _written(epoch, frozenset({node}))),
            _put(self._lineage, str(epoch)),
        )

    async def report_released(self, epoch: int, released: ReleasedFrame) -> CompareAndSetResult:
        value = json.dumps(released._asdict(), separators=(",", ":"))
        return await self._write([self._leads(epoch)], _put(self._released, value))

    async def grow(self, by: int) -> AgreedState:
        await self.read()  # signs in, so that the concurrent writes do not each do so
        for begun in range(0, by, GROWN_AT_ONCE):
            writes = (
                self._ask("/v3/kv/put", _put(_b64("/storenode/grown"), ""), bool, again=True)
                for _ in range(min(GROWN_AT_ONCE, by - begun))
            )
            await asyncio.gather(*writes)
        return await self.read()

    async def changed(self, after: int, seconds: float) -> AgreedState:
        # A watch may end for many reasons, so it only triggers a read.
        asked = {"create_request": {**self._watched, "start_revision": str(after + 1)}}
        read = b""

        def hear(chunk: bytes) -> bool:
            nonlocal read
            *lines, read = (read + chunk).split(b"\n")
            if len(read) > ANSWER_BYTES:
                raise ValueError("a line that does not end")
            results = [etcd_answers.parsed(line).get("result", {}) for line in lines if line]
            return any(result.get("events") or result.get("canceled") for result in results)

        for _ in range(len(self._endpoints)):
            try:
                await self._of_one("/v3/watch", asked, _Watch(hear, seconds))
            except NotAnswered as silence:
                if not silence.perhaps:  # the request did not reach it
                    self._endpoints.append(self._endpoints.pop(0))
                    continue
            break
        return await self.read()

    async def faults(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for endpoint in tuple(self._endpoints):
            if self._access.credential and not _is_private(endpoint):
                goes = "is sent there unencrypted" if self._access.in_clear else NOT_IN_CLEAR
                found[f"{endpoint}: the password of its user {goes}"] = None
                if not self._access.in_clear:
                    continue
            with suppress(NotAnswered):
                answer = await self._exchange(endpoint, "GET", "/version", None)
                found |= dict.fromkeys(known(answer.get("etcdserver")))
        return tuple(found)

    async def close(self) -> None:
        """Do nothing: each request has a connection of its own, so none stays open."""

    # --- requests -------------------------------------------------------------------------------

    def _all(self) -> list[dict[str, Any]]:
        keys = self._lead, self._insync, self._lineage, self._released
        return [{"request_range": {"key": key}} for key in keys]

    def _led(self, epoch: int, insync: int) -> list[dict[str, str]]:
        return [self._leads(epoch), self._of_revision(insync)]

    def _leads(self, epoch: int) -> dict[str, str]:
        return {"key": self._lead, "target": "CREATE", "create_revision": str(epoch)}

    def _of_revision(self, insync: int) -> dict[str, str]:
        return {"key": self._insync, "target": "MOD", "mod_revision": str(insync)}

    async def _write(
        self, conditions: list[dict[str, str]], *puts: dict[str, str]
    ) -> CompareAndSetResult:
        asked = {
            "compare": [{"result": "EQUAL", **condition} for condition in conditions],
            "success": [*({"request_put": put} for put in puts), *self._all()],
            "failure": self._all(),
        }
        return await self._ask("/v3/kv/txn", asked, etcd_answers.answered, again=False)

    # --- transport ------------------------------------------------------------------------------

    async def _ask(
        self, path: str, body: dict[str, Any], read: Callable[[dict[str, Any]], T], *, again: bool
    ) -> T:
        """Send a request to the endpoint that answered last, or else to another.

        :param read: decodes the response
        :param again: True if the request is idempotent, so that it may be sent again after a
            timeout
        :raises NotAnswered, LeaseLapsed:
        """
        why, perhaps = "no endpoint", False
        for _ in range(len(self._endpoints)):
            try:
                return self._said(await self._of_one(path, body), read)
            except NotAnswered as silence:
                self._endpoints.append(self._endpoints.pop(0))
                # A restored etcd waits for the member that issued the token and does not respond.
                self._token = None
                if silence.perhaps and not again:
                    raise
                why, perhaps = str(silence), perhaps or silence.perhaps
        raise NotAnswered(f"etcd does not answer at any address of VIA: {why}", perhaps=perhaps)

    def _said(self, answer: dict[str, Any], read: Callable[[dict[str, Any]], T]) -> T:
        try:
            return read(answer)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            why = (
                f"{self._endpoints[0]} does not answer like etcd, or holds data that no node wrote"
            )
            raise NotAnswered(why, perhaps=True) from error

    async def _of_one(
        self,
        path: str,
        body: dict[str, Any],
        watch: _Watch | None = None,
    ) -> dict[str, Any]:
        if self._access.credential is not None:
            if not self._access.in_clear and not _is_private(self._endpoints[0]):
                why = f"{self._endpoints[0]}: the password of its user {NOT_IN_CLEAR}"
                raise NotAnswered(why, perhaps=False)
            if self._token is None:
                await self._sign_in()
        try:
            return await self._post(path, body, watch)
        except _TokenEndedError:  # checked before anything was executed: safe to send again
            await self._sign_in()
        try:
            return await self._post(path, body, watch)
        except _TokenEndedError as ended:
            raise NotAnswered(f"{self._endpoints[0]}: {ended}", perhaps=False) from ended

    async def _sign_in(self) -> None:
        """Get a token. :raises NotAnswered: etcd refuses this node's credentials; the request was
        not executed"""
        if self._access.credential is None:
            raise NotAnswered(
                f"{self._endpoints[0]} requires a user: give its login with --etcd-login",
                perhaps=False,
            )
        self._token = None
        name, password = self._access.credential
        try:
            answer = await self._post("/v3/auth/authenticate", {"name": name, "password": password})
        except NotAnswered as silence:
            if _NO_USERS not in str(silence):
                raise NotAnswered(str(silence), perhaps=False) from silence
            answer = {"token": ""}  # if users are enabled later, a request is refused for it
        try:
            self._token = etcd_answers.token(answer)
        except (KeyError, ValueError) as error:
            raise NotAnswered(f"{self._endpoints[0]} returned no token", perhaps=False) from error

    async def _post(
        self,
        path: str,
        body: dict[str, Any],
        watch: _Watch | None = None,
    ) -> dict[str, Any]:
        return await self._exchange(self._endpoints[0], "POST", path, body, watch)

    async def _exchange(
        self,
        endpoint: str,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        watch: _Watch | None = None,
    ) -> dict[str, Any]:
        hear, seconds = watch or _Watch(None, ANSWER_SECONDS)
        to = urlsplit(endpoint)
        assert to.hostname, "endpoints are looked at where they are declared"
        tls = self._tls() if to.scheme == "https" else None
        port = to.port or (443 if tls else 80)
        loop, asked = asyncio.get_running_loop(), self._request(to.netloc, method, path, body)
        exchange, sent = _Exchange(asked, hear, loop.create_future()), False
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(lambda: exchange, to.hostname, port, ssl=tls)
            sent = True
            async with asyncio.timeout(seconds):
                status, data = await exchange.answer
        except (OSError, HttpParserError) as error:  # includes TimeoutError and TLS errors
            why = str(error) or "no answer in time"
            raise NotAnswered(f"{endpoint}: {why}", perhaps=sent) from error
        finally:
            exchange.end()
        return self._read(endpoint, status, data)

    def _tls(self) -> ssl.SSLContext:
        if self._access.tls is not None:
            return self._access.tls
        if self._system is None:
            self._system = ssl.create_default_context()  # slow: reads every system certificate
        return self._system

    def _request(self, host: str, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        data = b"" if body is None else json.dumps(body).encode()
        token = f"Authorization: {self._token}\r\n" if self._token else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        return head.encode("latin-1") + data

    def _read(self, endpoint: str, status: int, data: bytes) -> dict[str, Any]:
        try:
            body = etcd_answers.parsed(data)
        except ValueError as error:
            why = f"{endpoint} answered {status} without the JSON of etcd"
            raise NotAnswered(why, perhaps=True) from error
        if status == 200:
            return body
        code, said = etcd_answers.refusal(body)
        if code == _UNAUTHENTICATED or any(ended in said for ended in _TOKEN_ENDED):
            raise _TokenEndedError(said)
        if code == _NOT_FOUND and "lease not found" in said:
            raise LeaseLapsed(said)
        # etcd may have lost its quorum after it executed the request.
        raise NotAnswered(f"{endpoint} answered {status}: {said}", perhaps=True)


class _Exchange(asyncio.Protocol):
    """HTTP request and its response.

    :param hear: receives the chunks of the response body; once it returns True, the exchange is
        complete. None: the body is returned as part of the response
    """

    def __init__(
        self,
        request: bytes,
        hear: Callable[[bytes], bool] | None,
        answer: asyncio.Future[tuple[int, bytes]],
    ) -> None:
        self.answer = answer
        self._request = request
        self._hear = hear
        self._parser = HttpResponseParser(self)
        self._body = bytearray()
        self._transport: asyncio.Transport | None = None

    def end(self) -> None:
        """Release the exchange; its caller waits no longer."""
        if not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()  # mark as retrieved, or asyncio logs it
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response."""
        if self.answer.done():
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the exchange if its response is incomplete."""
        self._fail(
            exc or ConnectionResetError("it closed the connection before its answer was complete")
        )

    def on_body(self, body: bytes) -> None:
        """Collect a part of the response body (called by the parser)."""
        if self._hear is not None and self._parser.get_status_code() == 200:
            if self._hear(body):
                self._succeed(b"{}")
        elif len(self._body) + len(body) > ANSWER_BYTES:
            self._fail(ConnectionAbortedError("its answer is too long"))
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """Complete the exchange (called by the parser)."""
        self._succeed(bytes(self._body) if self._hear is None else b"{}")

    def _succeed(self, body: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result((self._parser.get_status_code(), body))

    def _fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _TokenEndedError(Exception):
    """etcd no longer accepts the token."""


def _is_private(endpoint: str) -> bool:
    """True if the traffic to an endpoint cannot be read on its way: it is https, or by its address
    on this machine."""
    to = urlsplit(endpoint)
    return to.scheme == "https" or is_loopback(to.hostname or "")


def _key(store: str, name: str) -> str:
    """Return the etcd key of a value of the store, in base64."""
    return _b64(f"/storenode/{store}/{name}")


def _put(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": _b64(value)}


def _b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _written(epoch: int, members: frozenset[str]) -> str:
    return json.dumps({"epoch": epoch, "members": sorted(members)}, separators=(",", ":"))

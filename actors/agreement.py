"""The door to what a cluster agrees on: etcd, by its JSON gateway. Nothing else knows of etcd.

| here | in etcd |
|---|---|
| `lead` | a key below the store's, with its lease; the epoch is its create revision |
| `insync` | a key below the store's; its revision is its mod revision |
| `lineage` | a key below the store's: an epoch in figures |
| `released` | a key below the store's, behind those that are watched |
| a condition | one transaction, which reads all keys behind what it writes |
| who names the agreement | `cluster_id` of every answer's header |

Numbers travel as strings and keys in base64; what is 0 or false is left out of an answer. Refusals
end in trailers, which Tornado's client takes for a broken answer: so each request is made here, on
a connection of its own, and read by llhttp, as those that come to the node are.

What an endpoint can't have got is asked of the next. What it may have got and not answered is asked
of another only if doing it twice does no harm; the rest ends as `NotAnswered`, with `perhaps`.
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
from protocol.agreement import (
    Agreed,
    Agreement,
    Answered,
    LeaseLapsed,
    NotAnswered,
    Released,
)

T = TypeVar("T")

ANSWER_BYTES: Final = limits.MIB
"""What is agreed is short: a longer answer comes from somebody else."""
GROWN_AT_ONCE: Final = 4
"""Requests that are under way together, of those that only count."""
CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 5.0
"""How long one endpoint may take, so that with the next there is an answer within most leases."""
NOT_IN_CLEAR: Final = (
    "goes over https alone, or to this machine: say https in VIA, or start with"
    " --etcd-login-in-clear"
)
_NOT_FOUND: Final = 5
_UNAUTHENTICATED: Final = 16
_TOKEN_ENDED: Final = (
    "invalid auth token",
    "revision of auth store is old",  # users, roles or rights have changed since
    "user name is empty",  # it asks for users since
)
"""The codes of gRPC that mean something here, and what 3.4 says under another code."""
_NO_USERS: Final = "authentication is not enabled"


class _Watch(NamedTuple):
    """An answer that comes piece by piece."""

    hear: Callable[[bytes], bool] | None
    """Takes what came; True: that is enough."""
    seconds: float


@dataclass(slots=True)
class Access:
    """How etcd lets this node in. It may be changed while the node runs: the next request goes by
    what stands here then."""

    credential: tuple[str, str] | None = field(default=None, repr=False)
    """A user of etcd and its password; None: it asks for none."""
    tls: ssl.SSLContext | None = None
    """For endpoints that are https; None: those are trusted whom the system trusts."""
    in_clear: bool = False
    """True if user and password may go over plain http to other machines."""


class Etcd(Agreement):
    """:param endpoints: `http://host:port` or `https://`, one at least; asked in turns"""

    def __init__(self, endpoints: Sequence[str], store: str, access: Access | None = None) -> None:
        self._endpoints = [endpoint.rstrip("/") for endpoint in endpoints]
        self._access = access or Access()
        self._system: ssl.SSLContext | None = None
        self._token: str | None = None
        self._lead = _key(store, "lead")
        self._insync = _key(store, "insync")
        self._lineage = _key(store, "lineage")
        self._released = _key(store, "released")
        # Up to that one: what is told every second or so would wake everybody who waits for news.
        self._watched = {"key": _key(store, ""), "range_end": self._released}

    async def look(self) -> Agreed:
        """See the door."""
        return await self._ask(
            "/v3/kv/txn", {"success": self._all()}, etcd_answers.agreed, again=True
        )

    async def grant(self, seconds: int) -> int:
        """See the door."""
        # One that was granted unheard lapses by itself.
        asked = {"TTL": str(seconds)}
        return await self._ask("/v3/lease/grant", asked, etcd_answers.granted, again=True)

    async def renew(self, lease: int) -> int:
        """See the door."""
        asked = {"ID": str(lease)}
        seconds = await self._ask("/v3/lease/keepalive", asked, etcd_answers.left, again=True)
        if seconds <= 0:
            raise LeaseLapsed(f"lease {lease:x} has lapsed")
        return seconds

    async def revoke(self, lease: int) -> None:
        """See the door."""
        with suppress(LeaseLapsed):
            await self._ask("/v3/lease/revoke", {"ID": str(lease)}, bool, again=True)

    async def found(self, members: frozenset[str]) -> Answered:
        """See the door."""
        absent = {"key": self._insync, "target": "CREATE", "create_revision": "0"}
        return await self._write([absent], _put(self._insync, _written(0, members)))

    async def take_lead(self, node: str, lease: int, insync: int) -> Answered:
        """See the door."""
        vacant = {"key": self._lead, "target": "CREATE", "create_revision": "0"}
        conditions = [vacant, self._of_revision(insync)]
        return await self._write(conditions, {**_put(self._lead, node), "lease": str(lease)})

    async def change(self, epoch: int, insync: int, members: frozenset[str]) -> Answered:
        """See the door."""
        return await self._write(
            self._led(epoch, insync), _put(self._insync, _written(epoch, members))
        )

    async def begin_lineage(self, epoch: int, insync: int, node: str) -> Answered:
        """See the door."""
        return await self._write(
            self._led(epoch, insync),
            _put(self._insync, _written(epoch, frozenset({node}))),
            _put(self._lineage, str(epoch)),
        )

    async def tell(self, epoch: int, released: Released) -> Answered:
        """See the door."""
        value = json.dumps(released._asdict(), separators=(",", ":"))
        return await self._write([self._leads(epoch)], _put(self._released, value))

    async def grow(self, by: int) -> Agreed:
        """See the door."""
        await self.look()  # which signs in once, for all of them
        for begun in range(0, by, GROWN_AT_ONCE):
            writes = (
                self._ask("/v3/kv/put", _put(_b64("/storenode/grown"), ""), bool, again=True)
                for _ in range(min(GROWN_AT_ONCE, by - begun))
            )
            await asyncio.gather(*writes)
        return await self.look()

    async def changed(self, after: int, seconds: float) -> Agreed:
        """See the door."""
        # What a watch tells is only that it is time to look: it may end for many reasons.
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
                if not silence.perhaps:  # it did not come there
                    self._endpoints.append(self._endpoints.pop(0))
                    continue
            break
        return await self.look()

    async def faults(self) -> tuple[str, ...]:
        """See the door."""
        found: dict[str, None] = {}
        for endpoint in tuple(self._endpoints):
            if self._access.credential and not _is_private(endpoint):
                goes = "goes there in the clear" if self._access.in_clear else NOT_IN_CLEAR
                found[f"{endpoint}: the password of its user {goes}"] = None
                if not self._access.in_clear:
                    continue
            with suppress(NotAnswered):
                answer = await self._exchange(endpoint, "GET", "/version", None)
                found |= dict.fromkeys(known(answer.get("etcdserver")))
        return tuple(found)

    async def close(self) -> None:
        """See the door. Each request has a connection of its own: there is nothing to give up."""

    # --- what is asked --------------------------------------------------------------------------

    def _all(self) -> list[dict[str, Any]]:
        keys = self._lead, self._insync, self._lineage, self._released
        return [{"request_range": {"key": key}} for key in keys]

    def _led(self, epoch: int, insync: int) -> list[dict[str, str]]:
        return [self._leads(epoch), self._of_revision(insync)]

    def _leads(self, epoch: int) -> dict[str, str]:
        return {"key": self._lead, "target": "CREATE", "create_revision": str(epoch)}

    def _of_revision(self, insync: int) -> dict[str, str]:
        return {"key": self._insync, "target": "MOD", "mod_revision": str(insync)}

    async def _write(self, conditions: list[dict[str, str]], *puts: dict[str, str]) -> Answered:
        asked = {
            "compare": [{"result": "EQUAL", **condition} for condition in conditions],
            "success": [*({"request_put": put} for put in puts), *self._all()],
            "failure": self._all(),
        }
        return await self._ask("/v3/kv/txn", asked, etcd_answers.answered, again=False)

    # --- how it is asked ------------------------------------------------------------------------

    async def _ask(
        self, path: str, body: dict[str, Any], read: Callable[[dict[str, Any]], T], *, again: bool
    ) -> T:
        """One request, of the endpoint that answered last or of another.

        :param read: what the answer says
        :param again: whether one that may have been done may be asked for another time
        :raises NotAnswered, LeaseLapsed:
        """
        why, perhaps = "no endpoint", False
        for _ in range(len(self._endpoints)):
            try:
                return self._said(await self._of_one(path, body), read)
            except NotAnswered as silence:
                self._endpoints.append(self._endpoints.pop(0))
                # An etcd that was restored waits for the one that gave the token, and says nothing.
                self._token = None
                if silence.perhaps and not again:
                    raise
                why, perhaps = str(silence), perhaps or silence.perhaps
        raise NotAnswered(f"etcd is out of reach: {why}", perhaps=perhaps)

    def _said(self, answer: dict[str, Any], read: Callable[[dict[str, Any]], T]) -> T:
        try:
            return read(answer)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            why = f"{self._endpoints[0]} answers otherwise than etcd, or holds what no node wrote"
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
        except _TokenEndedError:  # it was looked at before anything was done
            await self._sign_in()
        try:
            return await self._post(path, body, watch)
        except _TokenEndedError as ended:
            raise NotAnswered(f"{self._endpoints[0]}: {ended}", perhaps=False) from ended

    async def _sign_in(self) -> None:
        """:raises NotAnswered: it does not let this node in: nothing that it was asked was done"""
        if self._access.credential is None:
            raise NotAnswered(f"{self._endpoints[0]} asks for a user", perhaps=False)
        self._token = None
        name, password = self._access.credential
        try:
            answer = await self._post("/v3/auth/authenticate", {"name": name, "password": password})
        except NotAnswered as silence:
            if _NO_USERS not in str(silence):
                raise NotAnswered(str(silence), perhaps=False) from silence
            answer = {"token": ""}  # it may ask for one later: it says so then
        try:
            self._token = etcd_answers.token(answer)
        except (KeyError, ValueError) as error:
            raise NotAnswered(f"{self._endpoints[0]} gives no token", perhaps=False) from error

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
        except (OSError, HttpParserError) as error:  # TimeoutError and those of TLS among them
            why = str(error) or "no answer in time"
            raise NotAnswered(f"{endpoint}: {why}", perhaps=sent) from error
        finally:
            exchange.end()
        return self._read(endpoint, status, data)

    def _tls(self) -> ssl.SSLContext:
        if self._access.tls is not None:
            return self._access.tls
        if self._system is None:
            self._system = ssl.create_default_context()  # reads every certificate there is
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
            why = f"{endpoint} answered {status}, and no JSON that etcd would answer"
            raise NotAnswered(why, perhaps=True) from error
        if status == 200:
            return body
        code, said = etcd_answers.refusal(body)
        if code == _UNAUTHENTICATED or any(ended in said for ended in _TOKEN_ENDED):
            raise _TokenEndedError(said)
        if code == _NOT_FOUND and "lease not found" in said:
            raise LeaseLapsed(said)
        # It may have lost its majority in the midst of it.
        raise NotAnswered(f"{endpoint} answered {status}: {said}", perhaps=True)


class _Exchange(asyncio.Protocol):
    """One request and its answer.

    :param hear: takes the answer's body as it comes; once it says that it has heard enough, there
        is an answer. None: the body is part of the answer
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
        """Nobody waits for it any more."""
        if not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()  # it was looked at, or came when nobody waited
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Some of the answer."""
        if self.answer.done():
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self._fail(exc or ConnectionResetError("it closed the connection without an answer"))

    def on_body(self, body: bytes) -> None:
        """Of the parser: some of the body."""
        if self._hear is not None and self._parser.get_status_code() == 200:
            if self._hear(body):
                self._succeed(b"{}")
        elif len(self._body) + len(body) > ANSWER_BYTES:
            self._fail(ConnectionAbortedError("its answer is too long"))
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """Of the parser: that was the answer."""
        self._succeed(bytes(self._body) if self._hear is None else b"{}")

    def _succeed(self, body: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result((self._parser.get_status_code(), body))

    def _fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _TokenEndedError(Exception):
    """etcd does not know the token any more."""


def _is_private(endpoint: str) -> bool:
    """True if nobody between reads what goes there: it is https, or this machine as far as its
    address says."""
    to = urlsplit(endpoint)
    host = to.hostname or ""
    return to.scheme == "https" or host == "localhost" or host.startswith("127.") or host == "::1"


def _key(store: str, name: str) -> str:
    """A key of the store."""
    return _b64(f"/storenode/{store}/{name}")


def _put(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": _b64(value)}


def _b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _written(epoch: int, members: frozenset[str]) -> str:
    return json.dumps({"epoch": epoch, "members": sorted(members)}, separators=(",", ":"))

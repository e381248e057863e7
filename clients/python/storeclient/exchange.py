"""Requests and answers of one connection, without input or output.

Many requests are open at once; answers are matched by id. Invariant: each request is settled
exactly once, by its answer or by the end of the connection, whatever the peer sends. Before that, a
WATCH gets `StreamedMessage` messages, and a RUN with a stream its parts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from storeclient.answers import Answer, Fields, read_answer, read_results
from storeclient.errors import OutcomeUnknown, ProtocolBroken, StoreError, refused
from storeclient.frames import FrameReader, Kind, Message, encode
from storeclient.version import VERSION

Waiter = TypeVar("Waiter")

MAGIC: Final = "STORE"
MAJOR: Final = 1
MINORS: Final = (0, 10)
"""Lowest and highest minor version that this client speaks."""
MINOR_OF_FEEDS: Final = 1
MINOR_OF_STREAMS: Final = 5
MINOR_OF_VAULTS: Final = 6
MINOR_OF_AFTER: Final = 7
MINOR_OF_SEQUENCES: Final = 8
HELLO_ID: Final = 0
SMALL: Final = 4 * 1024
"""Bytes up to which a node does not count a frame."""
_NOTHING: Final = type(None)


@dataclass(frozen=True, slots=True)
class Credential:
    """User and password, or a token, or neither."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise ValueError("a user needs a password to sign in")
        if self.user is not None and self.token is not None:
            raise ValueError("give either user and password, or a token")

    def fields(self) -> dict[str, str]:
        """Return the fields for HELLO and AUTH."""
        every = {"user": self.user, "password": self.password, "token": self.token}
        return {name: value for name, value in every.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Welcome:
    """Welcome message: the node, and the signed-in user."""

    version: str
    node: str
    minor: int
    limits: dict[str, int]
    user: dict[str, Any] | None
    """Name, role and space; None if no user is signed in."""
    writable: bool | None = None
    """True if the node accepts writes; None: it is of a version that does not say."""
    leader: tuple[str, ...] = ()
    """Addresses of the leader, if it is another node and known."""


class NotSent(Exception):
    """The connection ended before any byte of the request was sent: it may be sent elsewhere."""


@dataclass(frozen=True, slots=True)
class StreamedMessage:
    """A message of a feed, or a part of an answer; more follow."""

    body: dict[str, Any]
    size: int
    """Size of its frame in bytes."""


@dataclass(frozen=True, slots=True)
class FeedEnded:
    """The requested end of a feed."""


Reply = Answer | Fields | Welcome | StreamedMessage | FeedEnded | StoreError | NotSent | None
"""Outcome of a request; None answers PING. The caller raises exceptions among them.
`StreamedMessage` does not end a WATCH."""
Settled = tuple[Waiter, Reply]


class Exchange(Generic[Waiter]):
    """Requests of one connection. The owner chooses the type of the waiters."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._waiting: dict[int, tuple[Kind, Waiter]] = {}
        self._streams: set[int] = set()
        """Ids of requests that are answered in parts."""
        self._large: dict[int, int] = {}
        """Frame sizes of open requests over `SMALL`, in bytes."""
        self._last = 0
        self.leaving = False
        """True once the node has sent BYE: it answers open requests and starts no new ones."""
        self.broken = False
        """True if nothing can be sent any more; `cause` is the node's error, if it sent one."""
        self.cause: StoreError | None = None

    @property
    def open(self) -> int:
        """Number of requests not settled yet."""
        return len(self._waiting)

    @property
    def open_bytes(self) -> int:
        """Bytes that open requests hold at the node, as frames; small ones are not counted."""
        return sum(self._large.values())

    @property
    def watched(self) -> list[int]:
        """Ids of open feeds."""
        return [id for id, (kind, _) in self._waiting.items() if kind is Kind.WATCH]

    def greet(self, credential: Credential, waiter: Waiter) -> bytes:
        """Return the first bytes of a connection; settled with a Welcome or an error."""
        hello = {
            "magic": MAGIC,
            "major": MAJOR,
            "minor": list(MINORS),
            "client": f"storeclient-py/{VERSION}",
            **credential.fields(),
        }
        self._waiting[HELLO_ID] = (Kind.HELLO, waiter)
        return encode(Kind.HELLO, HELLO_ID, hello)

    def ask(self, kind: Kind, body: dict[str, Any] | None, waiter: Waiter) -> tuple[int, bytes]:
        """Return the id and the bytes of a request.

        :raises ValueError, TypeError: see `frames.encode`; no request is open then
        """
        id = self._last + 1
        data = encode(kind, id, body)
        self._last = id
        self._waiting[id] = (kind, waiter)
        if len(data) > SMALL:
            self._large[id] = len(data)
        if kind is Kind.RUN and body is not None and body.get("stream"):
            self._streams.add(id)
        return id, data

    def give_up(self, id: int) -> bytes | None:
        """Abandon a request. Return the bytes that end it at the node, or None if there are none.

        Its answer still comes, and is dropped.
        """
        found = self._waiting.pop(id, None)
        if found is None or found[0] not in _ENDED_EARLY:
            return None
        return _end_early(found[0], id)

    def cancel(self, id: int) -> bytes:
        """Return the bytes that ask the node to end a request. Its answer is still awaited."""
        found = self._waiting.get(id)
        return _end_early(Kind.RUN if found is None else found[0], id)

    def bye(self) -> bytes:
        """Return the bytes that end the connection once all open requests are answered."""
        self.leaving = True
        return encode(Kind.BYE, 0)

    def receive(self, data: bytes) -> list[Settled[Waiter]]:
        """Return the requests that these bytes settle. `broken` is set if they include the node's
        final error.

        :raises ProtocolBroken: the peer violates the protocol; call `end`
        """
        settled: list[Settled[Waiter]] = []
        for message in self._reader.feed(data):
            if message.kind == Kind.BYE:
                self.leaving = True
            elif message.kind == Kind.ERROR and message.id == HELLO_ID:
                self.broken = True
                self.cause = _error(message)
                break
            elif message.kind == Kind.CHANGE:
                found = self._waiting.get(message.id)
                if found is None:
                    continue  # abandoned
                kind, waiter = found
                if kind is not Kind.WATCH:
                    self.broken = True
                    self.cause = ProtocolBroken(f"the node sent changes in answer to a {kind.name}")
                    break
                settled.append((waiter, StreamedMessage(message.body, message.size)))
            elif message.kind == Kind.PART:
                found = self._waiting.get(message.id)
                if found is None:
                    continue  # abandoned
                if message.id not in self._streams:
                    self.broken = True
                    self.cause = ProtocolBroken(
                        "the node answered in parts, which were not requested"
                    )
                    break
                settled.append((found[1], StreamedMessage(message.body, message.size)))
            else:
                found = self._waiting.pop(message.id, None)
                self._streams.discard(message.id)
                self._large.pop(message.id, None)
                if found is not None:  # else abandoned: its answer crossed the CANCEL
                    kind, waiter = found
                    settled.append((waiter, _reply(kind, message)))
        return settled

    def end(
        self, cause: BaseException | None, unsent: Collection[int] = ()
    ) -> list[Settled[Waiter]]:
        """End the connection. Return the outcome of each open request.

        :param unsent: ids of requests of which no byte was passed to the system
        """
        self.broken = True
        settled: list[Settled[Waiter]] = []
        for id, (kind, waiter) in self._waiting.items():
            if id in unsent:
                settled.append((waiter, NotSent()))
                continue
            if kind is Kind.HELLO and isinstance(cause, ProtocolBroken):
                settled.append((waiter, cause))
                continue
            error = OutcomeUnknown(
                "the connection ended before the answer came; the request may have been executed"
                if kind in (Kind.RUN, Kind.KV, Kind.TOPIC, Kind.VAULT)
                else f"the connection ended before {kind.name} was answered"
            )
            error.__cause__ = cause
            settled.append((waiter, error))
        self._waiting.clear()
        return settled


_ENDED_EARLY: Final = frozenset((Kind.RUN, Kind.TOPIC, Kind.WATCH))
"""Requests that the node can end before their answer."""


def _end_early(asked: Kind, id: int) -> bytes:
    return encode(Kind.UNWATCH if asked is Kind.WATCH else Kind.CANCEL, id)


def _reply(asked: Kind, message: Message) -> Reply:
    kind, body = message.kind, message.body
    try:
        if kind in (Kind.ERROR, Kind.REFUSED):
            return _error(message)
        if kind == Kind.ANSWER and asked is Kind.RUN:
            return read_answer(body)
        if kind == Kind.VALUE and asked in (Kind.KV, Kind.TOPIC, Kind.VAULT):
            return Fields(body)
        if kind == Kind.WELCOME and asked in (Kind.HELLO, Kind.AUTH):
            return _welcome(body)
        if kind == Kind.ANSWER and asked is Kind.WATCH:
            return FeedEnded()
        if kind == Kind.PONG and asked is Kind.PING:
            return None
    except StoreError as error:
        return error
    return ProtocolBroken(f"the node answered {asked.name} with a message of kind {kind}")


_ERROR: Final[dict[str, type | tuple[type, ...]]] = {
    "code": str, "message": str, "status": int, "retry": bool, "detail": (dict, _NOTHING),
    "request": (str, _NOTHING), "statement": (int, _NOTHING), "line": (int, _NOTHING),
    "column": (int, _NOTHING),
}  # fmt: skip
_WELCOME: Final[dict[str, type | tuple[type, ...]]] = {
    "version": str, "node": str, "minor": int, "limits": dict, "user": (dict, _NOTHING),
}  # fmt: skip


def _error(message: Message) -> StoreError:
    error = message.body.get("error")
    if not isinstance(error, dict):
        return ProtocolBroken("the node sent an error without its fields")
    try:
        _check("error", error, _ERROR)
        return refused(error, read_results(message.body.get("results")))
    except ProtocolBroken as broken:
        return broken


def _welcome(body: dict[str, Any]) -> Welcome:
    _check("welcome", body, _WELCOME)
    user = body.get("user")
    if user is not None and not isinstance(user.get("name"), str):
        raise ProtocolBroken("the node's welcome names no user")
    writable, leader = body.get("writable"), body.get("leader") or ()
    named = isinstance(leader, list | tuple) and all(isinstance(one, str) for one in leader)
    if not (isinstance(writable, bool | None) and named):
        raise ProtocolBroken("the node's welcome does not name the leader")
    return Welcome(
        body["version"], body["node"], body["minor"], body["limits"], user, writable, tuple(leader)
    )


def _check(what: str, found: dict[str, Any], wanted: Mapping[str, type | tuple[type, ...]]) -> None:
    """Check the types of fields. :raises ProtocolBroken: a field is missing, or has another type"""
    for name, kind in wanted.items():
        if not isinstance(found.get(name), kind):
            raise ProtocolBroken(f"the node sent an invalid {name} in {what}")

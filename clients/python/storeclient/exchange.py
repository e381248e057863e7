"""Requests and their answers on one connection, without input or output.

Many requests are open at once; an answer finds its request by id. Invariant: each request is
settled exactly once, by its answer or by the end of the connection, whatever the peer sends. A
WATCH is `Told` things before, and a RUN that asked for a stream its parts.
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
"""Lowest and highest minor that this client speaks."""
MINOR_OF_FEEDS: Final = 1
MINOR_OF_STREAMS: Final = 5
MINOR_OF_VAULTS: Final = 6
MINOR_OF_AFTER: Final = 7
MINOR_OF_SEQUENCES: Final = 8
HELLO_ID: Final = 0
SMALL: Final = 4 * 1024
"""Bytes of a frame that a node does not count."""
_NOTHING: Final = type(None)


@dataclass(frozen=True, slots=True)
class Credential:
    """User and password, or a token, or nothing."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise ValueError("a user signs in with a password")
        if self.user is not None and self.token is not None:
            raise ValueError("sign in with user and password, or with a token, not with both")

    def fields(self) -> dict[str, str]:
        """What HELLO and AUTH carry of it."""
        every = {"user": self.user, "password": self.password, "token": self.token}
        return {name: value for name, value in every.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Welcome:
    """What the node said of itself and of who is signed in."""

    version: str
    node: str
    minor: int
    limits: dict[str, int]
    user: dict[str, Any] | None
    """Name, role and space; None when nobody is signed in."""
    writable: bool | None = None
    """Whether the node takes changes; None: it is of a version that does not say."""
    leader: tuple[str, ...] = ()
    """Addresses of the node that takes them in its place, as far as it knows."""


class NotSent(Exception):
    """The connection ended before a byte of the request left: asking elsewhere is safe."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a feed says, or a part of an answer; it goes on."""

    body: dict[str, Any]
    size: int
    """Bytes of its frame."""


@dataclass(frozen=True, slots=True)
class Over:
    """A feed is over, as was asked."""


Reply = Answer | Fields | Welcome | Told | Over | StoreError | NotSent | None
"""How a request was settled; None answers PING. The caller raises what is an exception. `Told` is
not the end of a WATCH yet."""
Settled = tuple[Waiter, Reply]


class Exchange(Generic[Waiter]):
    """One connection's requests. What a waiter is, the owner decides."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._waiting: dict[int, tuple[Kind, Waiter]] = {}
        self._streams: set[int] = set()
        """Ids of requests that are answered in parts."""
        self._large: dict[int, int] = {}
        """Bytes of the frames of open requests that have many."""
        self._last = 0
        self.leaving = False
        """The node has said BYE: it answers what is open and begins nothing new."""
        self.broken = False
        """Nothing can be asked any more; `cause` says why where the node did."""
        self.cause: StoreError | None = None

    @property
    def open(self) -> int:
        """Requests not settled yet."""
        return len(self._waiting)

    @property
    def open_bytes(self) -> int:
        """What they hold at the node, as frames; small ones are not counted."""
        return sum(self._large.values())

    @property
    def watched(self) -> list[int]:
        """Ids of the feeds that are open."""
        return [id for id, (kind, _) in self._waiting.items() if kind is Kind.WATCH]

    def greet(self, credential: Credential, waiter: Waiter) -> bytes:
        """The first bytes of a connection; settled with a Welcome or an error."""
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
        """The id and the bytes of a request.

        :raises ValueError, TypeError: as `frames.encode`; nothing is open then
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
        """The bytes that end a request nobody waits for any more; None when it is settled.

        Its answer still comes and is dropped.
        """
        found = self._waiting.pop(id, None)
        return None if found is None else _end_early(found[0], id)

    def cancel(self, id: int) -> bytes:
        """The bytes that ask the node to end a request early. Its answer is still waited for."""
        found = self._waiting.get(id)
        return _end_early(Kind.RUN if found is None else found[0], id)

    def bye(self) -> bytes:
        """The bytes that end the connection once all that is open has been answered."""
        self.leaving = True
        return encode(Kind.BYE, 0)

    def receive(self, data: bytes) -> list[Settled[Waiter]]:
        """What these bytes settle. When they hold the node's last word, `broken` is set after.

        :raises ProtocolBroken: the peer does not speak the protocol; call `end`
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
                    continue  # it was given up
                kind, waiter = found
                if kind is not Kind.WATCH:
                    self.broken = True
                    self.cause = ProtocolBroken(f"the node tells of changes to a {kind.name}")
                    break
                settled.append((waiter, Told(message.body, message.size)))
            elif message.kind == Kind.PART:
                found = self._waiting.get(message.id)
                if found is None:
                    continue  # it was given up
                if message.id not in self._streams:
                    self.broken = True
                    self.cause = ProtocolBroken("the node answers in parts what asked for none")
                    break
                settled.append((found[1], Told(message.body, message.size)))
            else:
                found = self._waiting.pop(message.id, None)
                self._streams.discard(message.id)
                self._large.pop(message.id, None)
                if found is not None:  # else it was given up, and its answer crossed the CANCEL
                    kind, waiter = found
                    settled.append((waiter, _reply(kind, message)))
        return settled

    def end(
        self, cause: BaseException | None, unsent: Collection[int] = ()
    ) -> list[Settled[Waiter]]:
        """The connection is over: what that means for each open request.

        :param unsent: ids of requests of which no byte was handed to the system
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
                "the connection ended before the answer came; what was asked may have been done"
                if kind in (Kind.RUN, Kind.KV, Kind.TOPIC, Kind.VAULT)
                else f"the connection ended before {kind.name} was answered"
            )
            error.__cause__ = cause
            settled.append((waiter, error))
        self._waiting.clear()
        return settled


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
            return Over()
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
        raise ProtocolBroken("the node's welcome does not say who takes changes")
    return Welcome(
        body["version"], body["node"], body["minor"], body["limits"], user, writable, tuple(leader)
    )


def _check(what: str, found: dict[str, Any], wanted: Mapping[str, type | tuple[type, ...]]) -> None:
    """:raises ProtocolBroken: a field is missing, or is of another type"""
    for name, kind in wanted.items():
        if not isinstance(found.get(name), kind):
            raise ProtocolBroken(f"the {what} that the node sent has no {name} that is one")

"""What surfaces ask of the node, and what it answers: frozen, typed, free of any surface's form.

What is made for every request is a `msgspec.Struct`: a frozen dataclass takes ten times as long to
make, and those of one statement together took a twelfth of its time.

`Request[Reply]` ties a request to the type of its reply, so that `await ask(ref, request)` is
checked by the type checker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from msgspec import Struct
from msgspec import field as member

from protocol.errors import Refusal
from protocol.values import Value

Reply = TypeVar("Reply")

Surface = Literal["wire", "http", "command", "peer"]


class Request(Generic[Reply]):
    """A message that an actor answers with a `Reply`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Caller:
    """A signed-in user on one session, as every statement sees it."""

    user: str
    role: str
    space: str | None
    """The namespace or `ns.db` that the user belongs to; None for a store-wide user."""
    session: str | None
    """Names the session in logs and lists; not the token. None for Basic on each request."""
    surface: Surface
    address: str
    """Where the caller comes from, for the statement log: host and port, or `local`."""
    credential_version: int = field(default=0, compare=False)
    """Revocations on this node that the caller's password was checked behind. Those of its user
    that came later have ended it; see `Sessions.check_authenticated`."""


# --- sessions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Session:
    """A token and what it stands for."""

    token: str
    expires: datetime
    idle_seconds: int
    caller: Caller


def stays() -> bool:
    """Of an asker that is not known to go."""
    return False


@dataclass(frozen=True, slots=True)
class SignIn(Request[Session]):
    """Exchange a password for a token. Refused: SignInRefused, TooManyTries, Busy."""

    user: str
    password: str = field(repr=False)
    surface: Surface
    address: str
    is_gone: Callable[[], bool] = field(default=stays, repr=False)
    """True once nobody waits for the answer: its turn is another's then."""


@dataclass(frozen=True, slots=True)
class SignOut(Request[None]):
    """End the session of a token. Refused: SessionEnded."""

    token: str = field(repr=False)


class AuthenticateToken(Struct, Request[Caller], frozen=True):
    """Who a token stands for; counts as use of it. Refused: SessionEnded."""

    token: str
    surface: Surface
    address: str

    def __repr__(self) -> str:
        return f"AuthenticateToken(surface={self.surface!r}, address={self.address!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """As above: what msgspec has for it shows every field."""
        return [("surface", self.surface), ("address", self.address)]


class AuthenticatePassword(Struct, Request[Caller], frozen=True):
    """Who a user and password are, without a session. Refused as SignIn is."""

    user: str
    password: str
    surface: Surface
    address: str
    is_gone: Callable[[], bool] = stays
    """As of `SignIn`."""

    def __repr__(self) -> str:
        of = f"{self.user!r}, surface={self.surface!r}, address={self.address!r}"
        return f"AuthenticatePassword({of})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """As above: what msgspec has for it shows every field."""
        return [("user", self.user), ("surface", self.surface), ("address", self.address)]


@dataclass(frozen=True, slots=True)
class ChangePassword(Request[None]):
    """A user changes its own password; its other sessions end. Refused: SignInRefused (the old
    one is wrong), BadRequest (the new one's length), NotWritable."""

    caller: Caller
    """Its session goes on."""
    old: str = field(repr=False)
    new: str = field(repr=False)


# --- scripts ------------------------------------------------------------------------------------

NEW_MOMENT: Final = "new"
"""In place of a moment's name: what is committed now."""

ResultKind = Literal["rows", "value", "none", "info"]


class Result(Struct, frozen=True):
    """What one statement answered."""

    value: Value
    kind: ResultKind
    rows: int
    took_us: int
    changed: int | None = None
    """Records that it has made, changed or deleted, those that stay as they were too; None: it
    writes none, or the caller must not know how many."""


class HeldFile(Protocol):
    """A backup in a file that the node keeps for whoever asked, until it is closed or nobody holds
    this any more."""

    form: str
    sequence: int
    """The last commit that is in it."""
    sha256: bytes
    size: int
    """Bytes of it."""

    async def read(self, offset: int, count: int) -> bytes:
        """A stretch of it."""

    def close(self) -> None:
        """Keep it no longer. Closing twice is fine."""


class ScriptAnswer(Struct, frozen=True):
    """What a script answered; `refusal` is set when it stopped at one."""

    results: tuple[Result, ...]
    sequence: int
    """The committed sequence after the script's last write; after no write, the one it read at."""
    store: str
    """The id of the store …"""
    epoch: int
    """… and that of the history, which the sequence is one of."""
    namespace: str | None
    database: str | None
    refusal: Refusal | None = None
    """Its detail names `statement` (from 1) where one was being run, and as `committed` what is
    below."""
    committed: int = 0
    """The newest commit of the script's own that is on the disk; 0: there is none. Whoever can't
    give the answer away says so: the script is not to be sent again unchanged."""
    moment: str | None = None
    """The moment that it read and that is kept, by its name."""
    file: HeldFile | None = None
    """What it hands over; to be closed."""
    size: int | None = None
    """What the results take as msgpack, about; None: nobody has counted it."""


class RunScript(Struct, Request[ScriptAnswer], frozen=True):
    """Run a script as a caller. A refusal comes in the answer, beside what ran before it."""

    caller: Caller
    script: str
    request: str
    """Names the request in answers and logs."""
    parameters: Mapping[str, Value] = member(default_factory=dict)
    namespace: str | None = None
    database: str | None = None
    timeout_us: int | None = None
    """For the whole script; each statement may have a shorter TIMEOUT of its own."""
    reason: str | None = None
    answer_bytes: int | None = None
    """What its results may take as msgpack: what would make them larger is not committed."""
    moment: str | None = None
    """The moment of the store that all of it reads: the name of one that is kept, or `NEW_MOMENT`.
    Nothing is written then."""
    keep_us: int | None = None
    """How long that is kept behind it; None: `limits.MOMENT_SECONDS`."""
    hands_over: tuple[str, ...] = ()
    """Not empty: the script is one BACKUP without TO, of one of these forms, and the answer brings
    it as a file."""
    record: bool = False
    """Whether the statement log keeps it though it only reads."""
    after: int | None = None
    """A sequence that the node has to show before anything of it is run."""
    current: bool = False
    """Whether it is run only behind all that was released anywhere when it came, as all who might
    have taken the lead have confirmed."""


@dataclass(frozen=True, slots=True)
class CancelScript(Request[bool]):
    """Stop a running script at its next slice; what it committed stays. Answers whether a script
    of that request was running."""

    request: str


# --- the node -----------------------------------------------------------------------------------

Health = Literal["well", "closing", "failed"]
HeldUp = Literal["followers", "etcd", "leader"]
"""What a node of a cluster lacks while nothing that is written is released, or nobody leads."""
Unready = Literal["opening", "draining", "no_roles", "not_serving", "full", "failed", "stranded"]


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The newest frame on a node's disk. In a cluster more may be there than is shown: of nodes
    whose agreement is lost, the one with the latest epoch, and of those the one with the highest
    sequence, holds all that was ever released."""

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What probes and metrics show. Read without asking an actor: probes must answer when
    mailboxes are full."""

    health: Health
    reason: Unready | None
    """Why the node should get no traffic; None when it is ready."""
    held_up: HeldUp | None
    """Why, by its cluster, no changes come to be; None: they do, or in a moment."""
    roles: tuple[str, ...]
    version: str
    store_id: str
    node_id: str
    sequence: int
    """The newest that is shown: durable wherever it has to be."""
    log_begins: int
    uptime_seconds: float
    log_bytes: int = 0
    """Of all segments that the log still holds."""
    log_ends: LogEnds | None = None
    """None: there is nothing in it."""
    log_given_way: int = 0
    """Frames that left the log before their time, because the disk was full."""
    state_damage: str | None = None
    """What of the state can't be read."""
    log_damage: int = 0
    """Places where older segments of the log were found damaged."""
    endpoints: tuple[str, ...] = ()
    """Addresses that clients use, as DEFINE NODE ENDPOINTS declared them."""
    origins: tuple[str, ...] = ()
    """Of pages that may ask here from a browser, as DEFINE NODE ORIGINS declared them."""

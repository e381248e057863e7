"""Requests of surfaces to the node, and its answers: immutable, typed, independent of any surface's
encoding.

Types created for every request are `msgspec.Struct`s: a frozen dataclass takes ten times as long to
create, which for all of one statement was a twelfth of its time.

`Request[Reply]` ties a request to the type of its reply, so that the type checker checks `await
ask(ref, request)`.
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
    """Namespace or `ns.db` that the user belongs to; None for a store-wide user."""
    session: str | None
    """Id of the session in logs and lists; not the token. None for HTTP Basic on each request."""
    surface: Surface
    address: str
    """Address of the client, for the statement log: host and port, or `local`."""
    credential_version: int = field(default=0, compare=False)
    """Number of revocations on this node when the caller's password was checked. Later revocations
    of its user invalidate the caller; see `Sessions.check_authenticated`."""


# --- sessions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Session:
    """A token with the caller that it authenticates."""

    token: str
    expires: datetime
    idle_seconds: int
    caller: Caller


def stays() -> bool:
    """Return False: default of `is_gone` for a client whose disconnect is not observed."""
    return False


@dataclass(frozen=True, slots=True)
class SignIn(Request[Session]):
    """Exchange a password for a token. Refused: SignInRefused, TooManyTries, Busy."""

    user: str
    password: str = field(repr=False)
    surface: Surface
    address: str
    is_gone: Callable[[], bool] = field(default=stays, repr=False)
    """True once the client no longer waits for the answer: its place in the queue goes to the next
    one."""


@dataclass(frozen=True, slots=True)
class SignOut(Request[None]):
    """End the session of a token. Refused: SessionEnded."""

    token: str = field(repr=False)


class AuthenticateToken(Struct, Request[Caller], frozen=True):
    """Return the caller of a token; counts as use of the session. Refused: SessionEnded."""

    token: str
    surface: Surface
    address: str

    def __repr__(self) -> str:
        return f"AuthenticateToken(surface={self.surface!r}, address={self.address!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields without the token: msgspec's own version shows every field."""
        return [("surface", self.surface), ("address", self.address)]


class AuthenticatePassword(Struct, Request[Caller], frozen=True):
    """Return the caller of a user and password, without a session. Refused as SignIn is."""

    user: str
    password: str
    surface: Surface
    address: str
    is_gone: Callable[[], bool] = stays
    """True once the client no longer waits for the answer; see `SignIn`."""

    def __repr__(self) -> str:
        of = f"{self.user!r}, surface={self.surface!r}, address={self.address!r}"
        return f"AuthenticatePassword({of})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields without the password: msgspec's own version shows every field."""
        return [("user", self.user), ("surface", self.surface), ("address", self.address)]


@dataclass(frozen=True, slots=True)
class ChangePassword(Request[None]):
    """Change the caller's own password; the user's other sessions end. Refused: SignInRefused (the
    old password is wrong), BadRequest (length of the new one), NotWritable."""

    caller: Caller
    """The caller, whose session continues."""
    old: str = field(repr=False)
    new: str = field(repr=False)


# --- scripts ------------------------------------------------------------------------------------

NEW_MOMENT: Final = "new"
"""In place of a moment's name: a new snapshot of the committed state."""

ResultKind = Literal["rows", "value", "none", "info"]


class Result(Struct, frozen=True):
    """The answer of one statement."""

    value: Value
    kind: ResultKind
    rows: int
    took_us: int
    changed: int | None = None
    """Records that the statement created, updated or deleted, including those left as they were.
    None: it writes none, or the caller may not know the number."""


class HeldFile(Protocol):
    """A backup file that the node keeps for a client, until it is closed or garbage-collected."""

    form: str
    sequence: int
    """The last commit in the backup."""
    sha256: bytes
    size: int
    """Size in bytes."""

    async def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes from `offset`."""

    def close(self) -> None:
        """Release the file. Closing twice is fine."""


class ScriptAnswer(Struct, frozen=True):
    """Answer of a script; `refusal` is set if it stopped at one."""

    results: tuple[Result, ...]
    sequence: int
    """Committed sequence after the script's last write; after no write, the sequence that it read
    at."""
    store: str
    """Id of the store."""
    epoch: int
    """Leader epoch of `sequence`; with it the sequence is a causal token."""
    namespace: str | None
    database: str | None
    refusal: Refusal | None = None
    """Refusal that stopped the script. Its detail names `statement` (from 1) if one was being run,
    and `committed` as below."""
    committed: int = 0
    """The script's newest own commit that is on the disk; 0: none. A surface that cannot deliver
    the answer reports it, since the script must not be sent again unchanged."""
    moment: str | None = None
    """Name of the moment (pinned snapshot) that the script read, if it is kept."""
    file: HeldFile | None = None
    """File that the script hands over; the receiver must close it."""
    size: int | None = None
    """Approximate size of the results as msgpack, in bytes; None: not counted."""


class RunScript(Struct, Request[ScriptAnswer], frozen=True):
    """Run a script as a caller. A refusal comes in the answer, with the results before it."""

    caller: Caller
    script: str
    request: str
    """Id of the request in answers and logs."""
    parameters: Mapping[str, Value] = member(default_factory=dict)
    namespace: str | None = None
    database: str | None = None
    timeout_us: int | None = None
    """Time-out of the whole script; each statement may have a shorter TIMEOUT of its own."""
    reason: str | None = None
    answer_bytes: int | None = None
    """Largest size of the results as msgpack. A write that would exceed it is not committed."""
    moment: str | None = None
    """Snapshot that the whole script reads: the name of a kept moment, or `NEW_MOMENT`. The script
    is read-only then."""
    keep_us: int | None = None
    """Time that the moment is kept after this request; None: `limits.MOMENT_SECONDS`."""
    hands_over: tuple[str, ...] = ()
    """Not empty: the script is one BACKUP without TO, in one of these forms, and the answer carries
    the backup as a file."""
    record: bool = False
    """True if the statement log keeps the script even if it only reads."""
    after: int | None = None
    """Causal token: sequence that the node must have reached before the script runs."""
    current: bool = False
    """True for a linearizable read: the script runs only once this node shows all that was released
    anywhere before the request came. In-sync replicas confirm the leader for it (read index, Raft
    §6.4)."""


@dataclass(frozen=True, slots=True)
class CancelScript(Request[bool]):
    """Stop a running script at its next slice; its commits stay. Return whether a script of that
    request was running."""

    request: str


# --- the node -----------------------------------------------------------------------------------

Health = Literal["well", "closing", "failed"]
HeldUp = Literal["followers", "etcd", "leader"]
"""Cause of a stall of the cluster: too few recent followers, etcd silent, or no known leader."""
Unready = Literal["opening", "draining", "no_roles", "not_serving", "full", "failed", "stranded"]


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The newest frame on a node's disk, which may be ahead of the commit index. If the agreement
    is lost: the node with the latest epoch, and among those with the highest sequence, holds every
    released commit."""

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Status for probes and metrics. Read without a message to an actor: probes must answer when
    mailboxes are full."""

    health: Health
    reason: Unready | None
    """Reason why the node should get no traffic; None if it is ready."""
    held_up: HeldUp | None
    """Reason why the cluster releases no writes; None: it does, or will in a moment."""
    roles: tuple[str, ...]
    version: str
    store_id: str
    node_id: str
    sequence: int
    """Commit index: the newest sequence shown, durable on every in-sync replica."""
    log_begins: int
    uptime_seconds: float
    log_bytes: int = 0
    """Bytes of all segments of the log."""
    log_ends: LogEnds | None = None
    """Newest frame of the log; None: the log is empty."""
    log_given_way: int = 0
    """Frames pruned early because the disk was full."""
    state_damage: str | None = None
    """Unreadable part of the state, if any."""
    log_damage: int = 0
    """Damaged places found in older segments of the log."""
    endpoints: tuple[str, ...] = ()
    """Addresses for clients, declared by DEFINE NODE ENDPOINTS."""
    origins: tuple[str, ...] = ()
    """Web origins whose pages may call this node from a browser, declared by DEFINE NODE ORIGINS.
    """

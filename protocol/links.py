"""Links between the nodes of a cluster: their messages, and the interface to the transport.

Production uses TLS with pinned certificates (`surfaces/peers`), simulation a model of a network.
One test suite checks both against this interface. A link delivers messages complete and in order,
or ends; it never drops or repeats one.

Byte map of a message:

| offset | length | content |
|---|---|---|
| 0 | 4 | n, big-endian: the bytes that follow |
| 4 | n | one msgpack array: the name of the message, then its fields in their order |

A reader ignores fields beyond those it knows, so that later versions can append some.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Meta, Struct

from protocol import limits

VERSION: Final = 1
"""Version of the protocol between nodes. Only nodes with the same version connect."""
PREFIX_BYTES: Final = 4

Sequence = Annotated[int, Meta(ge=0, le=limits.INT_MAX)]
"""Sequence of a frame; also an epoch, a size, or an offset in a file."""
Id = Annotated[str, Meta(max_length=64)]
"""Id of a node or a store; empty: of a directory that holds no store yet."""
Digest = Annotated[bytes, Meta(max_length=64)]
Text = Annotated[str, Meta(max_length=4_096)]
Detail = str | int | bool | None | list[str]
Address = Annotated[str, Meta(max_length=limits.PEER_ADDRESS_CHARACTERS)]
Told = tuple[Sequence, Sequence, Digest]
"""End of a leader epoch (KIP-101): the epoch, its last frame, and that frame's digest."""
EntryName = Annotated[str, Meta(max_length=limits.ENTRY_NAME_CHARACTERS)]
PlaceTold = Annotated[tuple[Annotated[int, Meta(ge=0, le=2**32 - 1)], ...], Meta(max_length=2)]
"""Ids of a namespace and a database; empty: the store itself."""
Flags = Annotated[int, Meta(ge=0, le=2**32 - 1)]
FrameTold = tuple[Sequence, Sequence, Sequence, Flags, bytes]
"""A frame as in the log, unencrypted: sequence, epoch, time, flags, body."""


def _check_utc(moment: datetime | None) -> None:
    """Check that a datetime is in UTC. :raises ValueError: no zone, so that it cannot be compared,
    or another zone"""
    if moment is not None and moment.utcoffset() != timedelta(0):
        raise ValueError("a moment is said in UTC")


class Hello(Struct, tag=True, array_like=True, frozen=True):
    """First message of either side, once both have accepted the other's certificate. It was
    exchanged before any code gets the link: see `Link.peer`."""

    version: int
    store: Id
    node: Id


class Attach(Struct, tag=True, array_like=True, frozen=True):
    """Follower to leader: the state of its log. Answered `Attached`, `CopyNeeded` or `Refused`."""

    history: list[Told]
    end: Sequence
    """Last frame in its log."""
    applied: Sequence
    """Last frame that it has applied."""
    promised: Sequence
    """Highest epoch that it has promised, synced to its disk."""


class Attached(Struct, tag=True, array_like=True, frozen=True):
    """Answer to `Attach`. The logs agree up to `agree`: the follower truncates its log there, and
    frames follow."""

    epoch: Sequence
    agree: Sequence
    released: Sequence
    keeps: bool = False
    """True if the leader accepts `Entries`. A leader of an earlier version does not send this
    field, and must not get `Entries`."""
    time: Annotated[int, Meta(ge=0, le=limits.WALL_US_MAX)] = 0
    """Log time of the leader. The follower's log time follows it and the frames that it receives.
    0: unknown, from an earlier version."""


class CopyNeeded(Struct, tag=True, array_like=True, frozen=True):
    """Answer to `Attach`: the part of the log that the follower lacks is pruned."""

    begins: Sequence
    """First frame that the leader still has."""


class Refused(Struct, tag=True, array_like=True, frozen=True):
    """The request is refused."""

    code: Text
    """Code of the error catalogue (`protocol/errors.py`)."""
    message: Text
    detail: dict[str, Detail] = {}


class Leads(NamedTuple):
    """Redirect to the leader, in a refusal by another node."""

    node: str
    """Id of the leader."""
    peer: str
    """Address of the leader for other nodes, `host:port`."""
    pins: tuple[str, ...]
    """Certificate fingerprints of the leader, of which it shows one."""

    @property
    def detail(self) -> dict[str, Detail]:
        """The redirect as the detail of a refusal."""
        return {"leads": self.node, "peer": self.peer, "pins": list(self.pins)}

    @classmethod
    def of(cls, detail: Mapping[str, object]) -> Leads | None:
        """Return the redirect in a refusal's detail, or None."""
        node, peer, pins = (detail.get(name) for name in ("leads", "peer", "pins"))
        if not isinstance(node, str) or not isinstance(peer, str) or not isinstance(pins, list):
            return None
        return cls(node, peer, tuple(map(str, pins))) if pins else None


class Frames(Struct, tag=True, array_like=True, frozen=True):
    """Leader to follower: log frames in order; without frames a heartbeat."""

    epoch: Sequence
    """Epoch of the leader."""
    released: Sequence
    frames: list[FrameTold] = []
    round: Sequence = 0
    """Newest number that the follower has to echo (read index round); 0: none so far."""
    present: Sequence = 0
    """Newest number of `asks` that is answered: `released` includes all that was released anywhere
    when the follower asked."""
    kept: Sequence = 0
    """Newest of the follower's `Entries` that is committed and released, so that it can drop them.
    """


class Acknowledge(Struct, tag=True, array_like=True, frozen=True):
    """Follower to leader: its progress."""

    epoch: Sequence
    """Epoch of the leader."""
    synced: Sequence
    """Last frame synced to its disk."""
    applied: Sequence
    round: Sequence = 0
    """Newest number of `Frames.round` that it echoes; it has promised no later epoch."""
    asks: Sequence = 0
    """Number of its newest request for the read index; see `Frames.present`."""


class EntryTold(Struct, array_like=True, frozen=True):
    """Entry of the statement log or the audit trail, made at a follower. The leader takes the
    follower's name from the link. Other fields are described in `storage/formats/entries.py`."""

    at: Annotated[int, Meta(ge=0, le=limits.WALL_US_MAX)]
    """Time by the wall clock of the follower, in microseconds since 1970."""
    user: EntryName
    surface: Literal["wire", "http", "command", "peer", "node"]
    statement: Annotated[str, Meta(max_length=limits.ENTRY_TEXT_CHARACTERS)] | None
    reason: EntryName | None
    kept: Annotated[int, Meta(ge=1, le=3)]
    request: EntryName
    address: EntryName
    namespace: EntryName | None
    database: EntryName | None
    places: Annotated[tuple[PlaceTold, ...], Meta(min_length=1, max_length=limits.ENTRY_PLACES)]
    action: EntryName | None
    refused: EntryName | None
    needs: EntryName | None
    more: Sequence


class Entries(Struct, tag=True, array_like=True, frozen=True):
    """Follower to leader: entries for the statement log and the audit trail. Acknowledged by
    `Frames.kept`; the follower sends no more until then. On a new link it sends them again under
    the same numbers, so that delivery is at-least-once and the leader can drop duplicates."""

    epoch: Sequence
    """Epoch of the leader."""
    life: Annotated[bytes, Meta(min_length=16, max_length=16)]
    """Id of the follower's process: numbers restart in each."""
    first: Annotated[int, Meta(ge=1, le=2**48)]
    """Number of the first entry; the others follow consecutively."""
    entries: Annotated[list[EntryTold], Meta(min_length=1, max_length=limits.ENTRIES_CARRIED)]


class Compare(Struct, tag=True, array_like=True, frozen=True):
    """Leader to follower: digest of the leader's state at a frame."""

    seq: Sequence
    digest: Digest


class Copy(Struct, tag=True, array_like=True, frozen=True):
    """Empty directory to leader: request for a copy of the store. Answered `CopyBegins`, parts and
    `CopyEnds`, or `Refused`."""

    resume: Digest | None = None
    """Id of the copy to resume; None: a new one."""
    offset: Sequence = 0


class CopyBegins(Struct, tag=True, array_like=True, frozen=True):
    """Parts follow, from the requested offset; of a new copy from 0."""

    id: Digest
    store: Id
    size: Sequence
    """Total size in bytes."""
    at: Sequence
    """Frame of the snapshot; the log continues after it."""
    epoch: Sequence
    """Epoch of that frame."""
    history: list[Told]


class Part(Struct, tag=True, array_like=True, frozen=True):
    """Part of a copy."""

    offset: Sequence
    data: bytes


class CopyEnds(Struct, tag=True, array_like=True, frozen=True):
    """End of a copy: all parts were sent."""

    digest: Digest
    """SHA-256 of the whole copy."""


class Renew(Struct, tag=True, array_like=True, frozen=True):
    """Follower to leader: its next certificate. Answered `Renewed` once the node's row contains it,
    or `Refused`."""

    certificate: Id
    """Fingerprint of the certificate."""
    expires: datetime

    def __post_init__(self) -> None:
        _check_utc(self.expires)


class Renewed(Struct, tag=True, array_like=True, frozen=True):
    """Answer to `Renew`: the certificate may be shown from here on."""

    certificate: Id


class Redeem(Struct, tag=True, array_like=True, frozen=True):
    """Join token of an unknown node: its only valid message, in place of `Hello`. Answered
    `Redeemed` or `Refused`; then the connection ends."""

    version: int
    token: Annotated[str, Meta(max_length=limits.JOIN_TOKEN_CHARACTERS)]
    node: Id
    unused_4: None = None
    unused_5: Annotated[list[Address], Meta(max_length=0)] = []
    """With `unused_4`: two fields that earlier versions reserved for addresses and never filled.
    The row holds the addresses."""
    key: Id | None = None
    """Id of the key that its directory is encrypted with, in hexadecimal; empty: not encrypted. A
    key other than the store's is refused without using up the token. None: unknown, from an earlier
    version."""


class Redeemed(Struct, tag=True, array_like=True, frozen=True):
    """Answer to `Redeem`: the certificate that the node has shown is trusted from here on."""

    store: Id
    row: Text
    """Name of the new node's row."""
    node: Id
    """Id of the answering node."""


class AskWay(Struct, tag=True, array_like=True, frozen=True):
    """Request of a node without current log to any other node: the addresses of leader and etcd.
    Answered `Way`. A node of an earlier version does not know it, and ends the link."""


class Way(Struct, tag=True, array_like=True, frozen=True):
    """Answer to `AskWay`: known addresses of the leader and of etcd."""

    via: Annotated[list[Address], Meta(max_length=limits.FAILOVER_ADDRESSES)] = []
    """URLs of etcd by this node's failover policy; empty: it has no policy."""
    since: datetime | None = None
    """Log time of that policy: of two answers the later one counts."""
    leads: Id = ""
    """Id of the leader; empty: no leader is known."""
    peer: Address = ""
    """Address of the leader for other nodes."""
    pins: Annotated[list[Id], Meta(max_length=2)] = []
    """Certificate fingerprints of the leader, of which it shows one."""

    def __post_init__(self) -> None:
        _check_utc(self.since)

    @property
    def leader(self) -> Leads | None:
        """The leader, if its address and fingerprints are known, else None."""
        return Leads(self.leads, self.peer, tuple(self.pins)) if self.leads and self.pins else None


Message = (
    Hello | Attach | Attached | CopyNeeded | Refused | Frames | Acknowledge | Entries | Compare
    | Copy | CopyBegins | Part | CopyEnds | Renew | Renewed | Redeem | Redeemed
    | AskWay | Way
)  # fmt: skip

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


class BadMessage(ValueError):
    """The bytes are not a valid message. The text gives the reason, and quotes none of them."""


def encode(message: Message) -> bytes:
    """Encode a message with its length prefix."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


def decode(body: bytes | bytearray | memoryview) -> Message:
    """Decode a message without its length prefix. :raises BadMessage: it is invalid"""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadMessage(f"{len(body)} bytes are not a message of this version") from error


class LinkClosed(Exception):
    """The link could not be made, or has ended; the text gives the reason. Unanswered messages may
    have arrived or not."""


class NotKnown(LinkClosed):
    """The other node does not trust this node's certificate."""


class Peer(NamedTuple):
    """Identity of the node at the other end."""

    node: str
    """Id that the node claims. If its row has an id, both agree."""
    store: str
    """Id of its store; empty: it has none yet. Nodes of different stores are never linked."""
    fingerprint: str
    """Fingerprint of the certificate that it has shown."""
    row: str | None
    """Name of the row with that certificate. None: it is trusted by a join token, or this node's
    rows are older than the certificate."""


class Link(Protocol):
    """An end of a link. Used only on the event loop."""

    @property
    def peer(self) -> Peer:
        """Identity of the other end."""

    def send(self, message: Message) -> None:
        """Queue a message without waiting. On a closed link it is dropped, which `receive` reports.
        The link ends if the peer reads nothing for long, or if its queue is too long.

        :raises TooLarge: the message is longer than `limits.LINK_MESSAGE_BYTES`
        """

    async def drained(self) -> None:
        """Wait until the send queue is short enough for more (backpressure).

        :raises LinkClosed:
        """

    async def receive(self) -> Message:
        """Return the next message; those received before the link ended come first. Cancelling it
        loses no message. One call at a time. Without calls little more is read (backpressure).

        :raises LinkClosed:
        """

    def close(self, why: str = "") -> None:
        """End the link. Queued messages are still delivered if the peer reads them soon. Closing
        twice is fine.

        :param why: reason for the log, and for `receive` at this end
        """


class Links(Protocol):
    """Connects to other nodes."""

    async def connect(self, address: str, pins: Collection[str]) -> Link:
        """Connect to the node at an address, which has to show one of these certificates.

        :param address: `host:port`
        :param pins: fingerprints; revoked ones among them do not count. `Trust.pins_of` returns
            those of a node by its id, the CLUSTER file holds that of a token
        :raises NotKnown: the node there does not trust this node
        :raises LinkClosed: no node or another node is there, or it took too long
        """

    async def redeem(self, address: str, pin: str, asked: Redeem) -> Redeemed:
        """Have this node's certificate trusted, in exchange for a join token.

        :param pin: the fingerprint in the token
        :raises LinkClosed: see `connect`; the token may be used up or not
        :raises Refusal: the token is invalid (`SignInRefused`), too many were tried
            (`TooManyTries`), the store has another key (`WrongKey`), or the node can't commit
        """


Accept = Callable[[Link], Awaitable[None]]
"""Handler of an incoming link, called after the greeting. `receive` returns the peer's first
request: `Attach` or `Copy`. The link is closed when the handler returns."""

"""Links between the nodes of a cluster: what they say to each other, and the door to it.

Production passes TLS with pinned certificates (`surfaces/peers`), simulation a model of a network;
one suite of tests holds both to what is said here. A link brings messages whole and in their order,
or ends; it never loses one and goes on, and never repeats one.

Byte map of a message:

| offset | length | content |
|---|---|---|
| 0 | 4 | n, big-endian: the bytes that follow |
| 4 | n | one msgpack array: the name of the message, then its fields in their order |

A reader takes what has more fields than it knows, so that a later version may add some behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Meta, Struct

from protocol import limits

VERSION: Final = 1
"""Of what is said on a link. A node speaks with those alone that speak the same."""
PREFIX_BYTES: Final = 4

Sequence = Annotated[int, Meta(ge=0, le=limits.INT_MAX)]
"""Of a frame; or an epoch, a size, a place in a file."""
Id = Annotated[str, Meta(max_length=64)]
"""Of a node or a store; empty: of a directory that holds no store yet."""
Digest = Annotated[bytes, Meta(max_length=64)]
Text = Annotated[str, Meta(max_length=4_096)]
Detail = str | int | bool | None | list[str]
Address = Annotated[str, Meta(max_length=limits.PEER_ADDRESS_CHARACTERS)]
Told = tuple[Sequence, Sequence, Digest]
"""A reign: its epoch, the last frame of it, and that frame's digest."""
EntryName = Annotated[str, Meta(max_length=limits.ENTRY_NAME_CHARACTERS)]
PlaceTold = Annotated[tuple[Annotated[int, Meta(ge=0, le=2**32 - 1)], ...], Meta(max_length=2)]
"""The ids of a namespace and a database; empty: the store itself."""
Flags = Annotated[int, Meta(ge=0, le=2**32 - 1)]
FrameTold = tuple[Sequence, Sequence, Sequence, Flags, bytes]
"""A frame as it stands in the log, in clear: sequence, epoch, time, flags, body."""


def _check_utc(moment: datetime | None) -> None:
    """:raises ValueError: a moment without a zone, which compares with no other, or of another than
    UTC, which may have none there"""
    if moment is not None and moment.utcoffset() != timedelta(0):
        raise ValueError("a moment is said in UTC")


class Hello(Struct, tag=True, array_like=True, frozen=True):
    """The first that either side says, once both know the other's certificate. Whoever holds a link
    has had it: see `Link.peer`."""

    version: int
    store: Id
    node: Id


class Attach(Struct, tag=True, array_like=True, frozen=True):
    """A follower to who leads: what it has. Answered `Attached`, `CopyNeeded` or `Refused`."""

    history: list[Told]
    end: Sequence
    """The last frame in its log."""
    applied: Sequence
    """The last frame that it shows."""
    promised: Sequence
    """The highest epoch that it has promised, which is on its disk."""


class Attached(Struct, tag=True, array_like=True, frozen=True):
    """Up to `agree` both logs are the same: the follower cuts its own there, frames follow."""

    epoch: Sequence
    agree: Sequence
    released: Sequence
    keeps: bool = False
    """Whether it takes `Entries`. One of an earlier version does not know them, and says nothing of
    it; to them it is never said."""
    time: Annotated[int, Meta(ge=0, le=limits.WALL_US_MAX)] = 0
    """Log time there: the follower goes by that, and by the frames that it is sent. 0: it does not
    say, as of an earlier version."""


class CopyNeeded(Struct, tag=True, array_like=True, frozen=True):
    """The log that the follower lacks is there no more."""

    begins: Sequence
    """The first frame that is."""


class Refused(Struct, tag=True, array_like=True, frozen=True):
    """What was asked for is not done."""

    code: Text
    """Of the catalogue (`protocol/errors.py`)."""
    message: Text
    detail: dict[str, Detail] = {}


class Leads(NamedTuple):
    """Who leads, as one says of it who does not: it asks whoever was refused to go there."""

    node: str
    """Its id."""
    peer: str
    """`host:port`, where other nodes reach it."""
    pins: tuple[str, ...]
    """The fingerprints of which it shows one."""

    @property
    def detail(self) -> dict[str, Detail]:
        """As a refusal has it."""
        return {"leads": self.node, "peer": self.peer, "pins": list(self.pins)}

    @classmethod
    def of(cls, detail: Mapping[str, object]) -> Leads | None:
        """What a refusal says of it; None: nothing."""
        node, peer, pins = (detail.get(name) for name in ("leads", "peer", "pins"))
        if not isinstance(node, str) or not isinstance(peer, str) or not isinstance(pins, list):
            return None
        return cls(node, peer, tuple(map(str, pins))) if pins else None


class Frames(Struct, tag=True, array_like=True, frozen=True):
    """Frames of a leader, in their order; none: a sign of life."""

    epoch: Sequence
    """In which it leads."""
    released: Sequence
    frames: list[FrameTold] = []
    round: Sequence = 0
    """The newest number that the follower is asked to say back; 0: none was ever."""
    present: Sequence = 0
    """The newest of what the follower `asks`: all that was released anywhere when it did is in
    `released`."""
    kept: Sequence = 0
    """The newest of the follower's `Entries` that are committed, released and to be held no
    more."""


class Acknowledge(Struct, tag=True, array_like=True, frozen=True):
    """A follower to its leader."""

    epoch: Sequence
    """Of the leader."""
    synced: Sequence
    """The last frame that is on its disk."""
    applied: Sequence
    round: Sequence = 0
    """The newest number that it was asked to say back; it has promised no later epoch."""
    asks: Sequence = 0
    """Its newest question what is present; see `Frames.present`."""


class EntryTold(Struct, array_like=True, frozen=True):
    """An entry of the statement log or the audit trail, as it was made at a follower. At which one
    it does not say: that is who has said it. The rest is as in `storage/entries.py`."""

    at: Annotated[int, Meta(ge=0, le=limits.WALL_US_MAX)]
    """By the wall clock of the follower."""
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
    """A follower to its leader: what the statement log and the audit trail are to keep of what was
    done and refused at it. Not answered: `Frames.kept` says what is kept, and no more is said
    before that. What was said over another link is said again, under the same numbers."""

    epoch: Sequence
    """Of the leader."""
    life: Annotated[bytes, Meta(min_length=16, max_length=16)]
    """Of the follower's process: numbers begin anew in each."""
    first: Annotated[int, Meta(ge=1, le=2**48)]
    """The number of the first; the others follow it."""
    entries: Annotated[list[EntryTold], Meta(min_length=1, max_length=limits.ENTRIES_CARRIED)]


class Compare(Struct, tag=True, array_like=True, frozen=True):
    """What the leader's state was at a frame."""

    seq: Sequence
    digest: Digest


class Copy(Struct, tag=True, array_like=True, frozen=True):
    """An empty directory to the leader: the store is asked for. Answered `CopyBegins`, parts and
    `CopyEnds`, or `Refused`."""

    resume: Digest | None = None
    """The copy that is gone on with; None: a new one."""
    offset: Sequence = 0


class CopyBegins(Struct, tag=True, array_like=True, frozen=True):
    """Parts follow, from the offset that was asked for; of a new copy from 0."""

    id: Digest
    store: Id
    size: Sequence
    """Bytes of the whole."""
    at: Sequence
    """The frame that it shows the store at; the log goes on behind it."""
    epoch: Sequence
    """Of that frame."""
    history: list[Told]


class Part(Struct, tag=True, array_like=True, frozen=True):
    """A part of a copy."""

    offset: Sequence
    data: bytes


class CopyEnds(Struct, tag=True, array_like=True, frozen=True):
    """The parts were all."""

    digest: Digest
    """SHA-256 of the whole."""


class Renew(Struct, tag=True, array_like=True, frozen=True):
    """A follower to its leader: the certificate that it will show next. Answered `Renewed` once it
    stands in the row of that node, or `Refused`."""

    certificate: Id
    """Its fingerprint."""
    expires: datetime

    def __post_init__(self) -> None:
        _check_utc(self.expires)


class Renewed(Struct, tag=True, array_like=True, frozen=True):
    """It may be shown from now on."""

    certificate: Id


class Redeem(Struct, tag=True, array_like=True, frozen=True):
    """What a node that nobody knows may say in place of `Hello`, and nothing else: it brings a join
    token. Answered `Redeemed` or `Refused`; then the connection ends."""

    version: int
    token: Annotated[str, Meta(max_length=limits.JOIN_TOKEN_CHARACTERS)]
    node: Id
    unused_4: None = None
    unused_5: Annotated[list[Address], Meta(max_length=0)] = []
    """Two places that earlier versions had for addresses, and never filled: its row has them."""
    key: Id | None = None
    """The id of the key that its directory is sealed with, in hexadecimal digits; empty: it is not
    sealed. Who has another one than the store uses no token up. None: it does not say, as of an
    earlier version."""


class Redeemed(Struct, tag=True, array_like=True, frozen=True):
    """The certificate that it has shown is trusted from now on."""

    store: Id
    row: Text
    """The name of its own."""
    node: Id
    """Who answers."""


class AskWay(Struct, tag=True, array_like=True, frozen=True):
    """A node that lacks a part of the log to any other: where is it to turn to by now? Answered
    `Way`. One of an earlier version does not know this, and ends the link."""


class Way(Struct, tag=True, array_like=True, frozen=True):
    """What is known here of where others are."""

    via: Annotated[list[Address], Meta(max_length=limits.FAILOVER_ADDRESSES)] = []
    """Where the nodes agree, by the policy that stands here; none: by no policy."""
    since: datetime | None = None
    """Log time of that policy: of two ways the later one counts."""
    leads: Id = ""
    """The id of who leads; empty: nobody does that is known of."""
    peer: Address = ""
    """Where other nodes reach who leads."""
    pins: Annotated[list[Id], Meta(max_length=2)] = []
    """The fingerprints of which that one shows one."""

    def __post_init__(self) -> None:
        _check_utc(self.since)

    @property
    def leader(self) -> Leads | None:
        """Who leads, where it can be linked with; None: nothing is known of that."""
        return Leads(self.leads, self.peer, tuple(self.pins)) if self.leads and self.pins else None


Message = (
    Hello | Attach | Attached | CopyNeeded | Refused | Frames | Acknowledge | Entries | Compare
    | Copy | CopyBegins | Part | CopyEnds | Renew | Renewed | Redeem | Redeemed
    | AskWay | Way
)  # fmt: skip

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


class BadMessage(ValueError):
    """The bytes are no message; the text says why, and shows nothing of them."""


def encode(message: Message) -> bytes:
    """A message with its length in front."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


def decode(body: bytes | bytearray | memoryview) -> Message:
    """The message that stands behind a length. :raises BadMessage: there is none"""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadMessage(f"{len(body)} bytes are no message of this version") from error


class LinkClosed(Exception):
    """There is no link, or none any more; the text says why. What was sent and not answered may
    have arrived, or not."""


class NotKnown(LinkClosed):
    """The other side does not know the certificate that this one shows."""


class Peer(NamedTuple):
    """Who is at the other end."""

    node: str
    """The id of the node: as it says, and, where its row says so too, as that says."""
    store: str
    """The id of its store; empty: it holds none yet. Those that differ are never linked."""
    fingerprint: str
    """Of the certificate that it has shown."""
    row: str | None
    """The name of the row with that certificate; None: it is trusted for a token, or the rows that
    are known here are older than it."""


class Link(Protocol):
    """One end of a link. On the loop only."""

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""

    def send(self, message: Message) -> None:
        """Say something, without waiting. On a link that is closed it goes nowhere: `receive` tells
        so. A peer that takes nothing for long, or for which too much waits, ends the link.

        :raises TooLarge: the message is longer than `limits.LINK_MESSAGE_BYTES`
        """

    async def drained(self) -> None:
        """Return when little enough waits to be taken by the peer for more to be sent.

        :raises LinkClosed:
        """

    async def receive(self) -> Message:
        """The next that the peer said; what had come before the end comes first. May be cancelled:
        nothing is lost by it. One at a time. As long as nobody asks, little more is read.

        :raises LinkClosed:
        """

    def close(self, why: str = "") -> None:
        """End it: what was sent is still brought, if the peer takes it soon. Closing twice is fine.

        :param why: for the log, and for who receives at this end
        """


class Links(Protocol):
    """The door to other nodes."""

    async def connect(self, address: str, pins: Collection[str]) -> Link:
        """Link with the node at an address, which has to show one of these certificates.

        :param address: `host:port`
        :param pins: fingerprints; revoked ones among them are none. `Trust.pins_of` has those of a
            node by its id, the CLUSTER file the one of a token
        :raises NotKnown: who is there does not know this node
        :raises LinkClosed: nobody is there, or another; or it took too long
        """

    async def redeem(self, address: str, pin: str, asked: Redeem) -> Redeemed:
        """Have the certificate of this node trusted, for a join token.

        :param pin: the fingerprint in the token
        :raises LinkClosed: as `connect`; whether the token is used up is not known then
        :raises Refusal: the token opens nothing (`SignInRefused`), too many were tried
            (`TooManyTries`), the store has another key (`WrongKey`), the node can't commit
        """


Accept = Callable[[Link], Awaitable[None]]
"""What becomes of a link that another node has made: it is given one that has greeted. What the
peer says first is the next that `receive` has: `Attach` or `Copy`. The link is closed when it
returns."""

"""The row of a hand-out, and the receipt that names one. Their rules: the head of
`hand_outs/__init__.py`.

    0   1  state
    1   1  flags: 1 it is the only one in its entry of the index of deadlines
    2   4  attempt: how often it was handed out
    6   8  OUT: its deadline. WAITING: when it is due. PARKED: its delay. Log time
   14   8  OUT: the first position in its entry of the index of deadlines
   22   2  length of the member
   24   2  length of the key; only ordered groups keep it
   26   …  member · key · the error of the last NACK

A receipt names topic · group · epoch · position · attempt, so it is good for one hand-out only.
Groups are counted in each topic, so the topic stands in it: as a digest of the store and its id,
which tells it from others, from one of the same name that was made anew, and from that of the same
numbers in a store that was restored since; and nobody reads off how many topics others make.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, Final

from protocol import limits
from protocol.errors import BadRequest
from storage.topics import Topic

OUT: Final = 1
WAITING: Final = 2
PARKED: Final = 3

ALONE: Final = 1
"""A flag: it is the only one in its entry of the index of deadlines."""

_ROW: Final = Struct(">BBIQQHH")
assert _ROW.size == 26

_TOPIC_BYTES: Final = 4
"""Of the digest that names a topic: as many as told stores apart before topics were named, so that
receipts of then are stale, and no mistake."""
_RECEIPT: Final = re.compile(
    r"([0-9a-f]{8})\.([0-9]{1,10})\.([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,9})"
)

Named = tuple[str, int, int, int, int]
"""What a receipt names: the topic, as `topic_named` has it, group, epoch, position, attempt."""


@dataclass(slots=True)
class HandOut:
    """A row, read."""

    state: int
    flags: int
    attempt: int
    due_us: int
    batch: int
    member: bytes = b""
    key: bytes = b""
    error: bytes = b""

    def pack(self) -> bytes:
        """The row."""
        head = _ROW.pack(
            self.state, self.flags, self.attempt, self.due_us, self.batch, len(self.member),
            len(self.key),
        )  # fmt: skip
        return head + self.member + self.key + self.error


def unpacked(row: bytes) -> HandOut:
    """What a row says."""
    state, flags, attempt, due, batch, member, key = _ROW.unpack_from(row)
    at = _ROW.size + member
    return HandOut(
        state, flags, attempt, due, batch,
        row[_ROW.size : at], row[at : at + key], row[at + key :],
    )  # fmt: skip


def topic_named(store: str, topic: Topic) -> str:
    """How receipts of a topic begin. :param store: how its store's id begins"""
    id = topic.id.to_bytes(8, "big")
    return blake2b(id, digest_size=_TOPIC_BYTES, key=store.encode()).hexdigest()


def parsed_receipts(receipts: Sequence[Any]) -> list[Named]:
    """What receipts name. :raises BadRequest: one is no receipt, or there are too many"""
    if len(receipts) > limits.RECEIPTS:
        raise BadRequest(f"at most {limits.RECEIPTS} receipts at once", limit=limits.RECEIPTS)
    found: list[Named] = []
    for receipt in receipts:
        parts = _RECEIPT.fullmatch(receipt) if type(receipt) is str else None
        if parts is None:
            raise BadRequest(f"{str(receipt)[:40]!r} is no receipt of a TAKE")
        topic, *numbers = parts.groups()
        group, epoch, position, attempt = map(int, numbers)
        found.append((topic, group, epoch, position, attempt))
    return found

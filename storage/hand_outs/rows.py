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

A receipt names store · group · epoch · position · attempt, so it is good for one hand-out only: not
for that of the same numbers in a store that was restored since, which may hold another message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from protocol import limits
from protocol.errors import BadRequest

OUT: Final = 1
WAITING: Final = 2
PARKED: Final = 3

ALONE: Final = 1
"""A flag: it is the only one in its entry of the index of deadlines."""

_ROW: Final = Struct(">BBIQQHH")
assert _ROW.size == 26

_RECEIPT: Final = re.compile(
    r"([0-9a-f]{8})\.([0-9]{1,10})\.([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,9})"
)

Named = tuple[str, int, int, int, int]
"""What a receipt names: the store, by how its id begins, group, epoch, position, attempt."""


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


def parsed_receipts(receipts: Sequence[Any]) -> list[Named]:
    """What receipts name. :raises BadRequest: one is no receipt, or there are too many"""
    if len(receipts) > limits.RECEIPTS:
        raise BadRequest(f"at most {limits.RECEIPTS} receipts at once", limit=limits.RECEIPTS)
    found: list[Named] = []
    for receipt in receipts:
        parts = _RECEIPT.fullmatch(receipt) if type(receipt) is str else None
        if parts is None:
            raise BadRequest(f"{str(receipt)[:40]!r} is no receipt of a TAKE")
        store, *numbers = parts.groups()
        group, epoch, position, attempt = map(int, numbers)
        found.append((store, group, epoch, position, attempt))
    return found

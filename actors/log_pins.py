"""Pins: what somebody still reads of the log stays there, although retention would let it go.

A pin is a promise between the loop, which takes it, and the log's thread, which prunes: whoever was
given one finds the frames from its sequence on, until the pin is released or has lapsed, or the
disk is full. It lapses `limits.LOG_PIN_SECONDS` after it was taken, so that nobody who reads slowly
or not at all fills the disk; what is left of its reading is `LogPruned` then.

One lock makes the two agree: a prune settles what goes, and a pin what stays, each at one go.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from protocol import limits
from protocol.doors import Clock
from storage.segments import pruned


class Pin:
    """Keeps the log from a sequence on; made by `Pins.pin`."""

    __slots__ = ("_pins", "lapses_us", "sequence")

    def __init__(self, pins: Pins, sequence: int, lapses_us: int) -> None:
        self._pins = pins
        self.sequence = sequence
        self.lapses_us = lapses_us
        """When it keeps nothing more; monotonic."""

    def move(self, sequence: int) -> None:
        """What is before a sequence has been read: it may go. It lapses when it would have."""
        assert sequence >= self.sequence, "what was let go of may be gone"
        self.sequence = sequence

    def release(self) -> None:
        """Keep nothing more. Releasing twice is fine."""
        self._pins.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Pins:
    """All pins of one log. See the head of the file.

    :param begins: the first sequence that the log holds
    """

    def __init__(self, clock: Clock, begins: int) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begins = begins
        self._pins: set[Pin] = set()

    @property
    def held(self) -> int:
        """How many there are."""
        return len(self._pins)

    def pin(self, sequence: int) -> Pin:
        """Take one; on the loop.

        :raises LogPruned: the log begins later, or may in a moment
        """
        with self._lock:
            if sequence < self._begins:
                raise pruned(sequence, self._begins)
            lapses_us = self._clock.monotonic_us() + limits.LOG_PIN_SECONDS * 1_000_000
            taken = Pin(self, sequence, lapses_us)
            self._pins.add(taken)
            return taken

    def release(self, pin: Pin) -> None:
        """One is not needed any more."""
        with self._lock:
            self._pins.discard(pin)

    def settle(self, first: int) -> int:
        """What goes, in the log's thread: all before a sequence, or less where there are pins.

        :returns: the first sequence that stays
        """
        with self._lock:
            now_us = self._clock.monotonic_us()
            self._pins = {pin for pin in self._pins if pin.lapses_us > now_us}
            self._begins = max(min([first, *(pin.sequence for pin in self._pins)]), self._begins)
            return self._begins

    def gone(self, first: int) -> None:
        """The log begins at a sequence: earlier than was settled, since segments go as a whole, and
        none where the disk is full; or, since it is, later than what was pinned."""
        with self._lock:
            self._begins = first

"""Pins: keep a part of the log from being pruned while a reader needs it, against retention.

A pin is an agreement between the loop, which takes it, and the log thread, which prunes. Its holder
finds all frames from its sequence on until the pin is released or expires, or the disk is full. A
pin expires `limits.LOG_PIN_SECONDS` after it was taken, so that a slow or stuck reader can't fill
the disk; later reads then fail with `LogPruned`.

One lock makes both sides agree: a prune decides atomically which frames go, and a pin which frames
stay.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from protocol import limits
from protocol.environment import Clock
from storage.log.segments import pruned


class Pin:
    """Pin of the log from a sequence on; made by `Pins.pin`."""

    __slots__ = ("_pins", "lapses_us", "sequence")

    def __init__(self, pins: Pins, sequence: int, lapses_us: int) -> None:
        self._pins = pins
        self.sequence = sequence
        self.lapses_us = lapses_us
        """Monotonic time, in µs, at which the pin expires."""

    def move(self, sequence: int) -> None:
        """Advance the pin: frames before a sequence were read and may be pruned. Its expiry is
        unchanged."""
        assert sequence >= self.sequence, "what was let go of may be gone"
        self.sequence = sequence

    def release(self) -> None:
        """Release the pin. Idempotent."""
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
    """All pins of one log.

    :param begins: first sequence of the log
    """

    def __init__(self, clock: Clock, begins: int) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begins = begins
        self._pins: set[Pin] = set()

    @property
    def held(self) -> int:
        """Number of pins."""
        return len(self._pins)

    def pin(self, sequence: int) -> Pin:
        """Take a pin; on the loop.

        :raises LogPruned: the log begins later, or a prune that removes the sequence is under way
        """
        with self._lock:
            if sequence < self._begins:
                raise pruned(sequence, self._begins)
            lapses_us = self._clock.monotonic_us() + limits.LOG_PIN_SECONDS * 1_000_000
            taken = Pin(self, sequence, lapses_us)
            self._pins.add(taken)
            return taken

    def release(self, pin: Pin) -> None:
        """Remove a pin."""
        with self._lock:
            self._pins.discard(pin)

    def decide_prune(self, first: int) -> int:
        """Decide, in the log thread, which frames a prune removes: those before `first`, or fewer
        if pinned.

        :returns: the first sequence that stays
        """
        with self._lock:
            now_us = self._clock.monotonic_us()
            self._pins = {pin for pin in self._pins if pin.lapses_us > now_us}
            self._begins = max(min([first, *(pin.sequence for pin in self._pins)]), self._begins)
            return self._begins

    def gone(self, first: int) -> None:
        """Note the first sequence of the log after a prune.

        It may be earlier than decided, since only whole segments go and a full disk may prevent
        that. It may be later than a pin if the disk is full.
        """
        with self._lock:
            self._begins = first

"""Log retention of a serving node: the oldest segment that age or size lets stay.

Whole segments are pruned, and the last one always stays. After each flush of the state, the
checkpoints actor (`actors/checkpoints.py`) asks the log thread to prune (`actors/log.py`,
`Log.retire`). A segment goes only if the state has flushed its frames, and no pin of a reader holds
them (`actors/log_pins.py`). A full disk overrides retention and pins: `Log.give_way`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol import limits
from storage.log.segments import Segment


@dataclass(frozen=True, slots=True)
class LogRetention:
    """Retention by age or by size; with neither, the newest `LOG_FRAMES_KEPT` frames."""

    age_us: int | None = None
    """Age of frames to keep (µs of log time)."""
    bytes: int | None = None
    """Maximum bytes of segments; the last segment stays even if it is larger."""

    def begins(self, segments: Sequence[Segment], last: int, now_us: int) -> int:
        """Return the first sequence to keep.

        :param segments: segments of the log, oldest first
        :param last: the newest sequence
        :param now_us: log time
        """
        if self.age_us is not None:
            return _not_before(segments, now_us - self.age_us)
        if self.bytes is not None:
            return _at_most(segments, self.bytes)
        return last - limits.LOG_FRAMES_KEPT + 1


def _not_before(segments: Sequence[Segment], time_us: int) -> int:
    first = segments[0].first
    for segment in segments[1:]:
        # The header has the log time at the segment's begin: no earlier frame is later.
        if segment.header.time >= time_us:
            break
        first = segment.first
    return first


def _at_most(segments: Sequence[Segment], size: int) -> int:
    first, held = segments[-1].first, segments[-1].size
    # From the newest back, until the bytes are used up.
    for segment in reversed(segments[:-1]):
        held += segment.size
        if held > size:
            break
        first = segment.first
    return first

"""Messages of a topic. Invariant: each acknowledged message is in the log once, at the position
that was answered, and was delivered; no other message is there, and none is delivered again after
its acknowledgement.

Some are published under an ID, again until a publish is acknowledged: these exist exactly once. Of
the others, one with an unknown outcome exists once or never.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from typing import Any, ClassVar, Final, NamedTuple

from tests.cluster.asking import PLACE, NodeRefused, ResultUnknown
from tests.cluster.histories.history import ClientRequests, OperationHistory
from tests.cluster.plan import NodeAt

DEADLINE_SECONDS: Final = 2
PAGE: Final = 1_000
TAKEN_MOST: Final = 5
PATIENCE_SECONDS: Final = 60
"""Time for which leadership may move at the end, until a leader accepts the rest, seconds."""
TRIES_MOST: Final = 20
"""Attempts of a publish under an ID, before its outcome stays unknown."""


class AcknowledgedMessage(NamedTuple):
    mark: str
    position: int


class TopicDelivery(NamedTuple):
    position: int
    mark: str
    asked: float


class Ack(NamedTuple):
    position: int
    ended: float


class TopicHistory(OperationHistory):
    NAME = "topic"
    DEFINITIONS: ClassVar[str] = (
        "DEFINE TOPIC told DEDUP 7d;"
        f" DEFINE GROUP all ON told DEADLINE {DEADLINE_SECONDS}s IN FLIGHT 1000"
        " DELIVERIES 1000 AT START"
    )

    def __init__(self) -> None:
        self.published: list[AcknowledgedMessage] = []
        self.tried: set[str] = set()
        """Marks that may exist: all publishes that were not refused."""
        self.handed: list[TopicDelivery] = []
        self.acked: list[Ack] = []
        self.shown: dict[str, tuple[tuple[int, str], ...]] = {}
        """Final positions and marks, by node."""
        self._marks = itertools.count(1)
        self._lock = threading.Lock()

    def act(self, asking: ClientRequests, node: NodeAt, chance: random.Random, who: str) -> None:
        kind = chance.random()
        if kind < 0.3:
            self._publish(asking, node)
        elif kind < 0.6:
            self._publish_until(asking, node, chance)
        else:
            self._take(asking, node, chance.random() < 0.8)

    def _publish(self, asking: ClientRequests, node: NodeAt) -> None:
        mark = f"m{next(self._marks)}"
        self.tried.add(mark)
        try:
            found = asking.write(node, "PUBLISH INTO told VALUE $mark", mark=mark)
        except NodeRefused:
            self.tried.discard(mark)
            raise
        with self._lock:
            self.published.append(AcknowledgedMessage(mark, found.values[-1]["position"]))

    def _publish_until(self, asking: ClientRequests, node: NodeAt, chance: random.Random) -> None:
        mark = f"i{next(self._marks)}"
        self.tried.add(mark)
        for _ in range(TRIES_MOST):
            try:
                found = asking.write(node, "PUBLISH INTO told VALUE $mark ID $mark", mark=mark)
            except (NodeRefused, ResultUnknown):
                node = chance.choice(asking.nodes)
                time.sleep(0.05)
                continue
            with self._lock:
                self.published.append(AcknowledgedMessage(mark, found.values[-1]["position"]))
            return

    def _take(self, asking: ClientRequests, node: NodeAt, acks: bool) -> int:
        """Take some messages, and acknowledge them or not. Return their number."""
        asked = time.monotonic()
        found = asking.write(node, f"TAKE {TAKEN_MOST} FROM told AS all").values[-1]
        with self._lock:
            self.handed += [TopicDelivery(one["position"], one["value"], asked) for one in found]
        if found and acks:
            self._ack(asking, node, found)
        return len(found)

    def _ack(self, asking: ClientRequests, node: NodeAt, found: list[Any]) -> None:
        receipts = [one["receipt"] for one in found]
        told = asking.write(node, "ACK told AS all RECEIPTS $them", them=receipts).values[-1]
        if told["acked"] == len(found):
            ended = time.monotonic()
            with self._lock:
                self.acked += [Ack(one["position"], ended) for one in found]

    def finish(self, asking: ClientRequests, leader: NodeAt) -> None:
        """Take and acknowledge until no message has come for longer than the visibility timeout."""
        idle = began = time.monotonic()
        while time.monotonic() < idle + 2 * DEADLINE_SECONDS:
            try:
                found = self._take(asking, leader, True)
            except (NodeRefused, ResultUnknown):  # the lead moves, say: deliveries come again
                if time.monotonic() > began + PATIENCE_SECONDS:
                    raise
                leader = asking.asker.leader() or leader
                idle = time.monotonic()
                continue
            if found:
                idle = time.monotonic()
            else:
                time.sleep(0.05)

    def look(self, asking: ClientRequests, node: NodeAt) -> None:
        found: list[tuple[int, str]] = []
        while True:
            after = found[-1][0] if found else 0
            text = f"READ FROM told AFTER {after} LIMIT {PAGE}"
            page = asking.asker.value(node, text, **PLACE)
            found += [(one["position"], one["value"]) for one in page]
            if not page:
                break
        self.shown[node.name] = tuple(found)

    def wrong(self) -> list[str]:
        return [
            *self._wrong_in_the_log(),
            *unlike(self.handed, self.shown),
            *after_their_end(self.handed, self.acked),
        ]

    def _wrong_in_the_log(self) -> list[str]:
        found = []
        for name, shown in self.shown.items():
            if [position for position, _ in shown] != list(range(1, len(shown) + 1)):
                found.append(f"{name} has positions with gaps")
            there, times = set(shown), Counter(mark for _, mark in shown)
            lost = [one for one in self.published if (one.position, one.mark) not in there]
            if lost:
                found.append(f"{name} has lost {len(lost)} messages: {lost[:5]} …")
            if twice := [mark for mark, often in times.items() if often > 1]:
                found.append(f"{name} has messages twice: {twice[:5]} …")
            if invented := sorted(set(times) - self.tried):
                found.append(f"{name} has messages that were never published: {invented[:5]} …")
        return found

    @property
    def figures(self) -> str:
        return (
            f"{len(self.published)} messages acknowledged, {len(self.handed)} hand-outs,"
            f" {len(self.acked)} of them acknowledged"
        )


def unlike(handed: list[TopicDelivery], shown: dict[str, tuple[tuple[int, str], ...]]) -> list[str]:
    """Return the differences between deliveries and the log: each message is delivered, and no
    other."""
    given = {(one.position, one.mark) for one in handed}
    found = []
    for name, there in shown.items():
        if never := sorted(set(there) - given):
            found.append(f"{len(never)} messages of {name} were never handed out: {never[:5]} …")
        if made_up := sorted(given - set(there)):
            found.append(f"messages were handed out that {name} does not have: {made_up[:5]} …")
    return found


def after_their_end(handed: list[TopicDelivery], acked: list[Ack]) -> list[str]:
    """Return messages that were delivered to a request sent after their acknowledgement."""
    ended: dict[int, float] = {}
    for ack in acked:
        ended[ack.position] = min(ack.ended, ended.get(ack.position, ack.ended))
    again = [one for one in handed if one.asked > ended.get(one.position, one.asked)]
    return [f"{one} came after its acknowledgement" for one in again[:5]]

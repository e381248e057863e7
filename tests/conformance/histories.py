"""Histories: a testee asks on while nodes are killed, and what came of each call is judged.

Four workers make records, count, publish and read their own writes. One more handles the messages
of a group, and a watch follows the records. All of them are calls of one testee, so that the same
history judges each client. `judge` returns what is wrong: something acknowledged is lost, something
that was sent once is done twice, or something is there that was never asked for.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tests.conformance.testee import PATIENCE_SECONDS, Failed, Testee
from tests.conformance.values import plain, tagged

WORKERS: Final = 4
MORE: Final = 150
"""Acknowledged writes before each fault, and behind the last."""
DEADLINE_SECONDS: Final = 2
"""Time after which a message comes again that a killed node has handed to nobody."""
WAITS_MS: Final = {False: 300, True: 1000 * DEADLINE_SECONDS + 500}
"""Wait for messages, while more are published and behind the last."""
DEFINED: Final = (
    "DEFINE TABLE made; DEFINE TABLE newest; DEFINE TABLE handled; DEFINE SPACE counts;"
    " DEFINE TOPIC told DEDUP 1d; DEFINE GROUP all ON told"
    f" DEADLINE {DEADLINE_SECONDS}s DELIVERIES 1000 IN FLIGHT 1000 AT START"
)
MARK: Final = 0
"""Number of the record that is made behind all others."""
NOT_DONE: Final = frozenset(("NotEnoughReplicas", "NotWritable", "Draining", "Busy", "Conflict"))
"""Codes of refusals behind which nothing was done, unless they have `committed`."""

WRITES: Final = frozenset(("run", "cache.incr", "topic.publish"))
"""Calls of workers that change something."""

Call = dict[str, Any]
Steps = Generator[Call, dict[str, Any], None]
"""A worker: yields its calls one after the other, and gets the answer to each."""


@dataclass
class Outcomes:
    """Marks of the writes of one kind, by what came of them."""

    done: set[Any] = field(default_factory=set)
    unsure: set[Any] = field(default_factory=set)

    def lost(self, there: set[Any]) -> list[Any]:
        """Return those that were acknowledged and are not there."""
        return sorted(self.done - there)

    def invented(self, there: set[Any]) -> list[Any]:
        """Return those that are there, and were refused or never asked for."""
        return sorted(there - self.done - self.unsure)


@dataclass
class Stored:
    """State of the store at the end."""

    made: list[int]
    newest: list[int]
    """Numbers that repeatable scripts have set."""
    counts: dict[str, int]
    messages: list[tuple[int, str]]
    """Positions and values of the topic."""
    handled: list[int]
    """Positions of the messages whose effect is there."""


class History:
    """Calls of one testee, from `run` to `judge`.

    :param place: namespace and database, which hold what `DEFINED` defines
    """

    def __init__(self, testee: Testee, place: tuple[str, str]) -> None:
        self._testee = testee
        self._place = {"on": "c", "ns": place[0], "db": place[1]}
        self._over = False
        self._working = WORKERS
        self._numbers = itertools.count(1)
        self.acknowledged = 0
        """Writes that were acknowledged so far."""
        self.made, self.published, self.repeated = Outcomes(), Outcomes(), Outcomes()
        self.counted = [Counter[str]() for _ in range(WORKERS)]
        self.positions: dict[str, int] = {}
        """Answered positions of messages."""
        self.seen: Counter[int] = Counter()
        """How often the watch has shown each record."""
        self.refused: Counter[str] = Counter()
        self.open_outcomes = 0
        """Calls that ended without anybody knowing what became of them."""
        self._more = threading.Event()
        self._writing: set[int] = set()
        self._ended = self._looked_at = 0
        self.wrong: list[str] = []
        """What was wrong in an answer, whatever the store holds."""

    def run(self, faults: Callable[[History], None]) -> None:
        """Ask on while `faults` runs in a thread of its own, and somewhat longer.

        :param faults: calls `wait_more` before each fault
        """
        with ThreadPoolExecutor(1) as pool:
            watch = self._call("watch", table="made", **{"from": 0, "as": "w"})
            self._answered(self._testee.call(**watch), "the watch")
            ended = pool.submit(self._faults, faults)
            asking: dict[int, Steps] = {}
            for steps in self._all():
                self._go_on(asking, steps, None)
            wanted = self.acknowledged + MORE
            while asking:
                if self.acknowledged >= wanted:
                    wanted = self.acknowledged + MORE
                    self._more.set()
                self._over = ended.done()
                id, answer = self._testee.next_answer()
                self._writing.discard(id)
                self._ended += 1
                self._go_on(asking, asking.pop(id), answer)
            ended.result()

    def wait_more(self) -> None:
        """Wait until so many more writes are acknowledged. For the thread of the faults."""
        self._more.clear()
        if not self._more.wait(PATIENCE_SECONDS):
            raise Failed("nothing is acknowledged any more")

    def is_waiting(self) -> bool:
        """True if writes are under way, and no call has ended since this was asked last."""
        before, self._looked_at = self._looked_at, self._ended
        return bool(self._writing) and before == self._ended

    def _faults(self, faults: Callable[[History], None]) -> None:
        faults(self)
        self.wait_more()

    def _all(self) -> list[Steps]:
        return [*(self._work(number) for number in range(WORKERS)), self._handle(), self._follow()]

    def _go_on(self, asking: dict[int, Steps], steps: Steps, answer: Any) -> None:
        try:
            call = steps.send(answer)
        except StopIteration:
            return
        (id,) = self._testee.begin(call)
        asking[id] = steps
        if call["call"] in WRITES:
            self._writing.add(id)

    # --- workers

    def _call(self, word: str, **more: Any) -> Call:
        return {"call": word, **self._place, **more}

    def _work(self, worker: int) -> Steps:
        """Make, count, publish, and read all of it back, one by one."""
        counts, key = self.counted[worker], f"of {worker}"
        while not self._over:
            number = next(self._numbers)
            answer = yield self._script("CREATE $id SET n = $n", number, "made")
            self._note(self.made, number, answer, "a record")
            read = yield self._call(
                "query", script="SELECT VALUE n FROM $id", params=self._params(number, "made")
            )
            self._shows(number, read)
            answer = yield self._call("cache.incr", space="counts", key=key)
            counts[self._outcome(answer, "a count")] += 1
            read = yield self._call("cache.get", space="counts", key=key)
            self._counts(counts, read)
            mark = f"m{number}"
            answer = yield self._call("topic.publish", topic="told", value=mark)
            self._note(self.published, mark, answer, "a message")
            yield from self._publish_once(f"i{number}")
            answer = yield self._script("UPSERT $id SET n = $n", number, "newest", True)
            if self._note(self.repeated, number, answer, "a repeatable script") == "unsure":
                self.wrong.append(f"a repeatable script has an open outcome: {answer['error']}")
        self._working -= 1
        if self._working == 0:
            answer = yield self._script("UPSERT $id SET n = $n", MARK, "made", True)
            self._outcome(answer, "the last record", counts=False)

    def _publish_once(self, mark: str) -> Steps:
        """Publish under an id, again until it is acknowledged: it is there once."""
        outcome = "unsure"
        while outcome != "done":
            answer = yield self._call("topic.publish", topic="told", value=mark, message_id=mark)
            outcome = self._note(self.published, mark, answer, "a message with an id")
            if outcome == "wrong":
                return

    def _handle(self) -> Steps:
        """Take messages and handle each in one transaction, until no more will come."""
        group = {"topic": "told", "group": "all"}
        found: list[Any] = []
        is_last = False
        while found or not is_last:
            is_last = self._working == 0
            taken = yield self._call("group.take", count=20, wait=WAITS_MS[is_last], **group)
            if self._outcome(taken, "a take", counts=False) == "wrong":
                return
            found = taken.get("value") or []
            is_last = is_last and "error" not in taken
            for one in found:
                effect = {"position": one["position"]}
                answer = yield {
                    "call": "delivery.done", "receipt": one["receipt"], "params": effect,
                    "script": "CREATE handled SET position = $position",
                }  # fmt: skip
                self._outcome(answer, "done", counts=False)

    def _follow(self) -> Steps:
        """Count how often the watch shows each record, until the last one comes."""
        last, shown = 0, [MARK - 1]
        while MARK not in shown:
            answer = yield {"call": "next", "on": "w"}
            if self._outcome(answer, "the watch", counts=False) != "done":
                return
            commit = plain(answer["value"]["item"])
            if commit["seq"] <= last:
                self.wrong.append(f"the watch went back from {last} to {commit['seq']}")
            last = commit["seq"]
            shown = [change["value"]["n"] for change in commit["changes"]]
            self.seen.update(number for number in shown if number != MARK)

    # --- answers

    def _script(self, script: str, number: int, table: str, repeatable: bool = False) -> Call:
        more = {"repeatable": True} if repeatable else {}
        return self._call("run", script=script, params=self._params(number, table), **more)

    @staticmethod
    def _params(number: int, table: str) -> Any:
        return {"id": tagged({"$rec": [table, number]}), "n": tagged(number)}

    def _answered(self, answer: dict[str, Any], what: str) -> None:
        if "error" in answer:
            raise Failed(f"{what}: {answer['error']}\n{self._testee.shown()}")

    def _outcome(self, answer: dict[str, Any], what: str, counts: bool = True) -> str:
        """Return `done`, `unsure`, `refused` or `wrong`."""
        error = answer.get("error")
        if error is None:
            self.acknowledged += counts
            return "done"
        if error["kind"] == "OutcomeUnknown":
            self.open_outcomes += 1
            return "unsure"
        if error.get("code") in NOT_DONE and "committed" not in (error.get("detail") or {}):
            self.refused[error["code"]] += 1
            return "refused"
        self.wrong.append(f"{what}: {error['text'][:300]}")
        return "wrong"

    def _note(self, outcomes: Outcomes, mark: Any, answer: dict[str, Any], what: str) -> str:
        found = self._outcome(answer, f"{what} {mark}")
        if found == "done":
            outcomes.done.add(mark)
            outcomes.unsure.discard(mark)
            value = answer["value"]
            if "position" in value:
                self.positions[mark] = int(value["position"]["$int"])
        elif found == "unsure":
            outcomes.unsure.add(mark)
        return found

    def _shows(self, number: int, answer: dict[str, Any]) -> None:
        """A read shows what this client has made."""
        if self._outcome(answer, "a read", counts=False) != "done":
            return
        if number in self.made.done and plain(answer["value"]) != [number]:
            self.wrong.append(f"record {number} was acknowledged, and a read shows none")

    def _counts(self, counts: Counter[str], answer: dict[str, Any]) -> None:
        if self._outcome(answer, "a get", counts=False) != "done":
            return
        found = plain(answer["value"]["value"]) or 0
        if not counts["done"] <= found <= counts["done"] + counts["unsure"]:
            self.wrong.append(f"{found} is counted, of {dict(counts)}")

    # --- judging

    def judge(self, stored: Stored) -> list[str]:
        """Return what is wrong, as the store shows it."""
        return [
            *self.wrong[:5],
            *_differences("record", self.made, stored.made),
            *_differences("repeatable script", self.repeated, stored.newest),
            *self._wrong_counts(stored.counts),
            *_differences("message", self.published, [one for _, one in stored.messages]),
            *self._wrong_messages(stored),
            *self._wrong_watch(stored),
        ]

    def _wrong_counts(self, stored: dict[str, int]) -> list[str]:
        found = []
        for worker, counts in enumerate(self.counted):
            count = stored.get(f"of {worker}", 0)
            if not counts["done"] <= count <= counts["done"] + counts["unsure"]:
                found.append(f"counter {worker} is {count}, of {dict(counts)}")
        return found

    def _wrong_messages(self, stored: Stored) -> list[str]:
        there = {mark: position for position, mark in stored.messages}
        moved = [one for one, at in self.positions.items() if there.get(one, at) != at]
        found = [f"messages are not where it was answered: {moved[:5]}"] if moved else []
        handled = Counter(stored.handled)
        if never := sorted({position for position, _ in stored.messages} - set(handled)):
            found.append(f"{len(never)} messages were not handled: {never[:5]}")
        if twice := [position for position, times in handled.items() if times > 1]:
            found.append(f"messages were handled twice: {twice[:5]}")
        return found

    def _wrong_watch(self, stored: Stored) -> list[str]:
        found = []
        if twice := [number for number, times in self.seen.items() if times > 1]:
            found.append(f"the watch has shown records twice: {twice[:5]}")
        if missed := sorted(self.made.done - set(self.seen)):
            found.append(f"the watch has not shown {missed[:5]}")
        if invented := sorted(set(self.seen) - set(stored.made)):
            found.append(f"the watch has shown records that are not there: {invented[:5]}")
        return found

    @property
    def figures(self) -> str:
        """Counts, as text."""
        found = f"{self.acknowledged} writes acknowledged, {self.open_outcomes} open outcomes"
        return f"{found}, refused: {dict(self.refused)}"


def _differences(what: str, outcomes: Outcomes, stored: list[Any]) -> list[str]:
    there, times = set(stored), Counter(stored)
    found = []
    if lost := outcomes.lost(there):
        found.append(f"{what}s were acknowledged and are lost: {lost[:5]}")
    if twice := [mark for mark, count in times.items() if count > 1]:
        found.append(f"{what}s are there twice: {twice[:5]}")
    if invented := outcomes.invented(there):
        found.append(f"{what}s are there that were refused or never asked for: {invented[:5]}")
    return found

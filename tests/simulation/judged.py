"""Registers, counters and a lock, shared by clients of a cluster, and checked for linearizability
by the checkers of a real cluster (`tests/cluster/histories`).

Registers are written, compared and set. They are read with CURRENT, or with `after` the newest
sequence that any client has seen, on any node; or on the leader while its lease is valid. Counters
are keys of the cache. The holder of the lock writes to a record with its fencing token.

A lineage that lacks commits is a documented loss: all histories are then started again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final

from protocol.errors import Refusal
from protocol.requests import ScriptAnswer
from tests.cluster.histories.linear import ABSENT, Operation
from tests.cluster.histories.locks import (
    GUARDED,
    LEASE_SECONDS,
    LOCK,
    WRITES_MOST,
    BelievedLease,
    Guarded,
    out_of_order,
    two_holders,
)
from tests.cluster.histories.registers import KeysInUse, not_one_after_the_other
from tests.simulation.course import Course
from tests.simulation.members import SimulatedMember
from tests.simulation.promises import ClusterGuaranteeViolated

DEFINITIONS: Final = (
    "DEFINE TABLE register; DEFINE SPACE counter; DEFINE SPACE lock; DEFINE TABLE guarded;"
    " CREATE guarded:1 SET fence = 0, writes = 0, who = ''"
)
KEYS: Final = 2
EACH: Final = 40
"""Operations on a key, approximately, after which another replaces it."""
READ: Final = "SELECT VALUE v FROM register:[$key]"

Tell = Callable[[Refusal], bool]
"""Called with an error. Returns True if nothing was done for sure."""
Does = Callable[[SimulatedMember, random.Random], Awaitable[None]]


class Judged:
    """The histories of one world.

    :param acknowledged: called for each acknowledged commit
    :param refused: called for each error
    """

    def __init__(
        self,
        world: Course,
        acknowledged: Callable[[SimulatedMember, ScriptAnswer], None],
        refused: Tell,
    ) -> None:
        self.world = world
        self._acknowledged = acknowledged
        self._refused = refused
        self._history: dict[str, list[Operation]] = {"register": [], "counter": []}
        self._keys = {kind: KeysInUse(KEYS, EACH) for kind in self._history}
        self._leases = defaultdict[int, list[BelievedLease]](list)
        self._guarded = defaultdict[int, list[Guarded]](list)
        self._newest = defaultdict[int, int](int)
        """Newest sequence that any client has seen. Like the two above, by the number of losses so
        far."""
        self._seen: dict[str, Any] = {}
        """By key, a value that a client has seen: a useful operand of compare-and-set."""
        self._values = itertools.count(1)
        self._lives = itertools.count(1)

    @property
    def acts(self) -> tuple[Does, ...]:
        return (
            self._set, self._swap, self._swap, self._read_current, self._read, self._read_by_lease,
            self._count, self._read_count, self._lock,
        )  # fmt: skip

    # --- registers --------------------------------------------------------------------------------

    async def _set(self, machine: SimulatedMember, chance: random.Random) -> None:
        key, value = self._key("register", chance), next(self._values)
        script = "UPSERT register:[$key] SET v = $v RETURN NONE"
        done = await self._change(machine, "register", key, "set", (value,), script, {"v": value})
        if done is not None:
            self._seen[key] = value

    async def _swap(self, machine: SimulatedMember, chance: random.Random) -> None:
        key, value = self._key("register", chance), next(self._values)
        old = self._seen.get(key, ABSENT)
        old = 0 if old == ABSENT else old  # which is nowhere
        script = "UPDATE register:[$key] SET v = $v WHERE v = $old"
        more = {"v": value, "old": old}
        done = await self._change(machine, "register", key, "swap", (old, value), script, more)
        if done:
            self._seen[key] = value

    async def _read_current(self, _machine: SimulatedMember, chance: random.Random) -> None:
        machine, key = chance.choice(self.world.machines), self._key("register", chance)
        await self._look(machine, "register", key, f"{READ} CURRENT")

    async def _read(self, _machine: SimulatedMember, chance: random.Random) -> None:
        machine, key = chance.choice(self.world.machines), self._key("register", chance)
        await self._look(machine, "register", key, READ, after=True)

    async def _read_by_lease(self, machine: SimulatedMember, chance: random.Random) -> None:
        await self._look(machine, "register", self._key("register", chance), READ, by_lease=True)

    # --- counters ---------------------------------------------------------------------------------

    async def _count(self, machine: SimulatedMember, chance: random.Random) -> None:
        key = self._key("counter", chance)
        await self._change(machine, "counter", key, "incr", (), "INCR $key IN counter", {})

    async def _read_count(self, _machine: SimulatedMember, chance: random.Random) -> None:
        machine, key = chance.choice(self.world.machines), self._key("counter", chance)
        await self._look(machine, "counter", key, "GET $key FROM counter", after=True)

    # --- the lock ---------------------------------------------------------------------------------

    async def _lock(self, machine: SimulatedMember, chance: random.Random) -> None:
        # Nobody goes by a name twice: an answer that never came may have been a lease of its own.
        who, lost, began = f"c{next(self._lives)}", self._lost, self._now
        held = await self._asked(machine, LOCK, {"who": who})
        if held is None or not held["held"]:
            return
        got, fence = self._now, held["fence"]
        for _ in range(chance.randrange(1, WRITES_MOST)):
            taken = await self._asked(machine, GUARDED, {"fence": fence, "who": who})
            if taken:
                self._guarded[lost].append(Guarded(taken[0]["writes"], fence, who))
            await asyncio.sleep(chance.choice((0, 0.1, 0.5)))
        self._leases[lost].append(
            BelievedLease(got, min(self._now, began + LEASE_SECONDS), fence, who)
        )
        if chance.random() < 0.8:  # or it has died, and the lease runs out
            await self._asked(machine, "UNLOCK 'one' IN lock HOLDER $who", {"who": who})

    async def _asked(
        self, machine: SimulatedMember, script: str, parameters: dict[str, Any]
    ) -> Any:
        """Return the value of the last statement; None: no answer, or one of a lost lineage."""
        lost = self._lost
        answer = await machine.ask(script, parameters=parameters)
        if not isinstance(answer, ScriptAnswer) or answer.refusal is not None:
            refusal = answer.refusal if isinstance(answer, ScriptAnswer) else answer
            if refusal is not None:
                self._refused(refusal)
            return None
        return answer.results[-1].value if lost == self._lost else None

    # --- how --------------------------------------------------------------------------------------

    @property
    def _lost(self) -> int:
        """Number of lineages so far that have lost commits."""
        return self.world.promises.losses

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _key(self, kind: str, chance: random.Random) -> str:
        return f"{self._lost}.{self._keys[kind].draw(chance)}"

    async def _change(
        self,
        machine: SimulatedMember,
        kind: str,
        key: str,
        name: str,
        arguments: tuple[Any, ...],
        script: str,
        parameters: dict[str, Any],
    ) -> Any:
        """Return the answer to a change; None: it was refused, or its outcome is unknown."""
        began, lost = self._now, self._lost
        answer = await machine.ask(script, parameters={"key": key, **parameters})
        if lost != self._lost:
            return None
        if isinstance(answer, ScriptAnswer) and answer.refusal is None:
            found: Any = answer.results[-1].value
            if name == "incr":
                found = found["value"]
            elif name == "swap":
                found = bool(found)
            else:
                found = True
            if found:
                self._acknowledged(machine, answer)
            self._add(kind, key, name, arguments, found, began, answer)
            return found
        refusal = answer.refusal if isinstance(answer, ScriptAnswer) else answer
        if refusal is None or not self._refused(refusal):
            self._history[kind].append(Operation(key, name, arguments, None, began))
        return None

    async def _look(
        self,
        machine: SimulatedMember,
        kind: str,
        key: str,
        script: str,
        *,
        after: bool = False,
        by_lease: bool = False,
    ) -> None:
        began, lost = self._now, self._lost  # before it is looked what is newest
        answer = await machine.ask(
            f"{script}; INFO FOR NODE" if by_lease else script,
            self._newest[lost] if after else None,
            parameters={"key": key},
        )
        if lost != self._lost or answer is None:
            return
        refusal = answer.refusal if isinstance(answer, ScriptAnswer) else answer
        if refusal is not None:
            self._refused(refusal)
            return
        assert isinstance(answer, ScriptAnswer)
        values: list[Any] = [one.value for one in answer.results]
        if by_lease and not values[-1]["lease"]:
            return
        found: Any = values[0]
        if kind == "register":
            value = found[0] if found else ABSENT
            self._seen[key] = value
        else:
            value = found["value"] if isinstance(found, dict) else ABSENT
        self._add(kind, key, "get", (), value, began, answer)

    def _add(
        self,
        kind: str,
        key: str,
        name: str,
        arguments: tuple[Any, ...],
        found: Any,
        began: float,
        answer: ScriptAnswer,
    ) -> None:
        self._history[kind].append(Operation(key, name, arguments, found, began, self._now))
        self._newest[self._lost] = max(self._newest[self._lost], answer.sequence)
        self.world.figures["judged"] += 1

    # --- the judgement ----------------------------------------------------------------------------

    def judge(self) -> None:
        """Check the histories.

        :raises Broken: a history is not linearizable, or a lock had two holders
        """
        wrong = list[str]()
        for kind, part in self._history.items():
            wrong += not_one_after_the_other(kind, part)
        if self._clocks_agree:
            for leases in self._leases.values():
                wrong += [f"held by two: {one} and {two}" for one, two in two_holders(leases)]
        for writes in self._guarded.values():
            wrong += [f"fences go back: {one}, {two}" for one, two in out_of_order(writes)]
        if wrong:
            raise ClusterGuaranteeViolated("\n".join(wrong))
        kinds = self._history.values()
        self.world.figures["unknown"] += sum(one.ended == inf for part in kinds for one in part)
        self.world.figures["leases"] += sum(map(len, self._leases.values()))

    @property
    def _clocks_agree(self) -> bool:
        """True if clocks agree. A leader whose clock is ahead ends leases early: only fences count
        then."""
        shape, figures = self.world.shape, self.world.figures
        return len(set(shape.rates)) == len(set(shape.walls_us)) == 1 and not figures["set_wall"]

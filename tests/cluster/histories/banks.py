"""Bank transfers: money moves between accounts, in transactions that also record each transfer.

Invariant: no read on any node, of one statement or of a snapshot pinned over several requests, sees
the total change. In the end every account has the balance that the recorded transfers leave it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tests.cluster.asking import PLACE, NodeRefused
from tests.cluster.histories.history import ClientRequests, OperationHistory
from tests.cluster.plan import NodeAt

ACCOUNTS: Final = 8
EACH: Final = 1_000
"""Initial balance of each account."""
TOTAL: Final = ACCOUNTS * EACH
MOVE: Final = """
BEGIN;
UPDATE account:[$source] SET money -= $much RETURN NONE;
UPDATE account:[$to] SET money += $much RETURN NONE;
CREATE moved:[$n] SET n = $n, source = $source, to = $to, much = $much RETURN NONE;
COMMIT
"""
ACCOUNTS_NOW: Final = "SELECT VALUE money FROM account"


class Move(NamedTuple):
    n: int
    source: int
    to: int
    much: int


class BankRead(NamedTuple):
    """A complete read of a bank's accounts at one point."""

    where: str
    money: tuple[int, ...]


class Ending(NamedTuple):
    node: str
    money: tuple[int, ...]
    """Balances, by account."""
    moves: frozenset[Move]


class Bank(OperationHistory):
    NAME = "bank"
    DEFINITIONS = (
        "DEFINE TABLE account; DEFINE TABLE moved;"
        f" FOR $n IN 0..{ACCOUNTS} {{ UPSERT account:[$n] SET n = $n, money = {EACH} }}"
    )

    def __init__(self) -> None:
        self.acknowledged: set[Move] = set()
        self.tried: set[Move] = set()
        """Transfers that may have happened: all that were not refused."""
        self.looks: list[BankRead] = []
        self.endings: list[Ending] = []
        self._numbers = itertools.count(1)

    def act(self, asking: ClientRequests, node: NodeAt, chance: random.Random, who: str) -> None:
        kind = chance.random()
        if kind < 0.6:
            self._move(asking, node, chance)
        elif kind < 0.85:
            self._look_once(asking, chance.choice(asking.nodes))
        else:
            self._look_twice(asking, chance.choice(asking.nodes))

    def _move(self, asking: ClientRequests, node: NodeAt, chance: random.Random) -> None:
        source, to = chance.sample(range(ACCOUNTS), 2)
        move = Move(next(self._numbers), source, to, chance.randrange(1, 20))
        self.tried.add(move)
        try:
            asking.write(node, MOVE, **move._asdict())
        except NodeRefused:
            self.tried.discard(move)
            raise
        self.acknowledged.add(move)

    def _look_once(self, asking: ClientRequests, node: NodeAt) -> None:
        found = asking.read(node, ACCOUNTS_NOW)
        if found is not None:
            self.looks.append(BankRead(f"{node.name} at {found.sequence}", tuple(found.values[-1])))

    def _look_twice(self, asking: ClientRequests, node: NodeAt) -> None:
        """Read half of the accounts, then the other half, in one pinned snapshot."""
        half = ACCOUNTS // 2
        one = asking.read(node, f"{ACCOUNTS_NOW} WHERE n < {half}", moment="new", keep="10s")
        if one is None:
            return
        text = f"{ACCOUNTS_NOW} WHERE n >= {half}"
        two = asking.read(node, text, moment=one.moment, keep="0s")
        if two is None:
            return
        where = f"{node.name} in moments of {one.sequence} and {two.sequence}"
        self.looks.append(BankRead(where, (*one.values[-1], *two.values[-1])))

    def look(self, asking: ClientRequests, node: NodeAt) -> None:
        text = f"{ACCOUNTS_NOW} ORDER BY n; SELECT n, source, to, much FROM moved"
        money, moves = asking.asker.script(node, text, **PLACE)
        self.endings.append(Ending(node.name, tuple(money), frozenset(_read(moves))))

    def wrong(self) -> list[str]:
        found = [
            f"on {look.where} {len(look.money)} accounts have {sum(look.money)}: {look.money}"
            for look in self.looks
            if sum(look.money) != TOTAL or len(look.money) != ACCOUNTS
        ]
        for ending in self.endings:
            if lost := sorted(self.acknowledged - ending.moves):
                found.append(f"{ending.node} has lost {len(lost)} moves: {lost[:5]} …")
            if invented := sorted(ending.moves - self.tried):
                found.append(f"{ending.node} has moves that were never made: {invented[:5]} …")
            if ending.money != left_by(ending.moves):
                found.append(
                    f"{ending.node} has {ending.money} in its accounts, but its moves leave"
                    f" {left_by(ending.moves)}"
                )
        return found

    @property
    def figures(self) -> str:
        moments = sum("moments" in look.where for look in self.looks)
        return (
            f"{len(self.acknowledged)} moves of money acknowledged, {len(self.looks)} looks at all"
            f" accounts, {moments} of them in moments"
        )


def left_by(moves: Iterable[Move]) -> tuple[int, ...]:
    """Return the balances after some transfers."""
    money = [EACH] * ACCOUNTS
    for move in moves:
        money[move.source] -= move.much
        money[move.to] += move.much
    return tuple(money)


def _read(moves: list[dict[str, Any]]) -> list[Move]:
    return [Move(row["n"], row["source"], row["to"], row["much"]) for row in moves]

"""Mirrors of three real nodes while their leaders are killed."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from storeclient import Client, Copied, Mirror
from tests.actors.agreement.etcds import needs_etcd
from tests.processes import PASSWORD, USER
from tests.reliability.clusters import PATIENCE_SECONDS, Cluster, cluster

pytestmark = needs_etcd

WHERE = "n >= 0"


class Mirrors:
    """One for each node, of that node alone, one of all nodes, and one of what meets a condition:
    the feeds of the first stand where they are, whoever leads."""

    def __init__(self, found: Cluster, stack: ExitStack) -> None:
        self._stack = stack
        at = [f"127.0.0.1:{member.at.wire}" for member in found.members]
        self.all = self._client(at)
        self.copied: list[list[Copied]] = []
        self.mirrors = [self._mirror(self._client([one])) for one in at]
        self.mirrors += [self._mirror(self.all), self._mirror(self.all, WHERE)]

    def _client(self, at: list[str]) -> Client:
        made = Client(at, user=USER, password=PASSWORD, timeout=PATIENCE_SECONDS)
        return self._stack.enter_context(made)

    def _mirror(self, client: Client, where: str | None = None) -> Mirror:
        copied = list[Copied]()
        self.copied.append(copied)
        made = client.database("a", "b").mirror("t", where=where, on_copy=copied.append)
        return self._stack.enter_context(made)

    def check(self) -> None:
        """All of them are equal to the table, and nobody has copied it anew."""
        db = self.all.database("a", "b")
        seq = db.run("UPSERT t:last SET n = 0", repeatable=True).seq
        for mirror in self.mirrors:
            mirror.reached(seq)
        rows = {row["id"]: row for row in db.query("SELECT * FROM t")}
        for mirror in self.mirrors:
            assert mirror.snapshot() == rows
        assert [[one.why for one in copied] for copied in self.copied] == [[None]] * 5


@pytest.mark.hard
@pytest.mark.timeout(1_200)
def test_mirrors_outlive_their_leaders(tmp_path: Path) -> None:
    numbers = count()
    with cluster(tmp_path) as found, ExitStack() as stack:
        mirrors = Mirrors(found, stack)
        for turn in range(6):
            with found.written():
                wanted = len(found.acknowledged) + 10
                found.until("some are taken", lambda: len(found.acknowledged) > wanted)  # noqa: B023
                leader = found.led()
                leader.kill()
                found.write_until_taken(next(numbers))
                if turn % 2:  # what stood through a failover comes back behind it
                    other = next(
                        each for each in found.members if each not in (leader, found.led())
                    )
                    found.until("it follows", lambda: other.about.get("leader"))  # noqa: B023
                    other.stop()
                    other.start()
                leader.start()
                found.in_sync(3)
        found.check()
        mirrors.check()

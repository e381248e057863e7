"""Reads of the present, with real nodes and a real etcd."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bench.cluster.asking import Unknown
from tests.actors.agreement.etcds import needs_etcd
from tests.reliability.clusters import PLACE, Member, cluster

pytestmark = [needs_etcd, pytest.mark.timeout(300)]
CURRENT = "SELECT VALUE n FROM t CURRENT"


def current(member: Member) -> set[int]:
    return set(member.script(CURRENT, **PLACE)[-1])


def test_a_leader_that_is_cut_off_answers_nothing_as_current(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        found.write_until_taken(1)
        old = found.led()
        found.cut(*found.around(old))
        new = found.led(but=old)
        found.until("it is written", lambda: new.value("UPSERT t:2 SET n = 2", **PLACE))
        assert old.value("SELECT VALUE n FROM t", **PLACE) == [1], "why CURRENT is there"
        with pytest.raises(Unknown, match="StatementTimeout"):
            old.script(CURRENT, timeout="1s", **PLACE)
        for each in found.members:
            if each != old:
                assert current(each) == {1, 2}
        found.cut()
        found.until("it follows", lambda: set(old.value(CURRENT, **PLACE) or ()) == {1, 2})


def test_every_node_reads_what_was_answered_anywhere(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        rng = Random(5)
        for number in range(60):
            found.write_until_taken(number)
            each = rng.choice(found.members)
            assert found.acknowledged <= current(each), f"{each.name} at {number}"

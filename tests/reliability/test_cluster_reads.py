"""Reads of the present, with real nodes and a real etcd."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.actors.agreement.etcds import needs_etcd
from tests.cluster.asking import ResultUnknown
from tests.reliability.clusters import PLACE, Member, cluster

pytestmark = [needs_etcd, pytest.mark.hard, pytest.mark.timeout(300)]
CURRENT = "SELECT VALUE n FROM t CURRENT"


def current(member: Member) -> set[int]:
    return set(member.script(CURRENT, **PLACE)[-1])


def test_reads_of_the_present_show_what_was_answered_anywhere(tmp_path: Path) -> None:
    """Also while the leader of before, which does not know of the other, is cut off."""
    with cluster(tmp_path) as found:
        rng = Random(5)
        for number in range(60):
            found.write_until_taken(number)
            each = rng.choice(found.members)
            assert found.acknowledged <= current(each), f"{each.name} at {number}"
        old = found.led()
        found.cut(*found.around(old))
        new = found.led(but=old)
        found.until("it is written", lambda: new.value("UPSERT t:60 SET n = 60", **PLACE))
        shown = old.value("SELECT VALUE n FROM t", **PLACE)
        assert sorted(shown) == [*range(60)], "why CURRENT is there"
        with pytest.raises(ResultUnknown, match="StatementTimeout"):
            old.script(CURRENT, timeout="1s", **PLACE)
        for each in found.members:
            if each != old:
                assert current(each) == {*range(61)}
        found.cut()
        found.until("it follows", lambda: set(old.value(CURRENT, **PLACE) or ()) == {*range(61)})

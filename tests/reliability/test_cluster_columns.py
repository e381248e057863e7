"""Columns of followers: each node builds its own, and all answer alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.actors.agreement.etcds import needs_etcd
from tests.cluster import chaos
from tests.reliability.clusters import PLACE, Cluster, Member, cluster

pytestmark = [needs_etcd, pytest.mark.hard, pytest.mark.timeout(300)]

ROWS = 9_000
FILL = f"""
    DEFINE TABLE IF NOT EXISTS sale; DEFINE FIELD IF NOT EXISTS amount ON sale TYPE decimal;
    INSERT INTO sale COLUMNS {{
        id: array::map(0..{ROWS}, |$n| $n),
        amount: array::map(0..{ROWS}, |$n| 10dec + $n % 100),
        rate: array::map(0..{ROWS}, |$n| $n / 7),
        country: array::map(0..{ROWS}, |$n| ['DE', 'FR', 'IT'][$n % 3])
    }} IGNORE RETURN NONE
"""
CHANGES = """
    UPDATE sale SET amount += {0}, rate = 0.5 + {0} WHERE country = 'FR' AND amount < 20dec;
    DELETE sale WHERE amount = {1}dec; UPSERT sale:{2} SET amount = 3dec, country = 'AT'
"""
QUESTIONS = (
    "SELECT country, count() AS n, sum(amount) AS a, mean(rate) AS r FROM {} GROUP BY country",
    "SELECT count() AS n FROM {} WHERE amount > 60dec AND country != 'IT' GROUP ALL",
    "SELECT id, rate FROM {} ORDER BY rate DESC, amount LIMIT 5",
)


def answers(member: Member, source: str) -> list[Any]:
    return member.script("; ".join(one.format(source) for one in QUESTIONS), **PLACE)


def all_answer_alike(found: Cluster) -> None:
    """Every node reads columns, and says what reading by row says, with one state."""
    found.in_sync(3)
    wanted = answers(found.led(), "sale:..")
    for each in found.members:
        assert answers(each, "sale") == wanted, each.name
        (explained,) = each.script(f"EXPLAIN {QUESTIONS[0].format('sale')}", **PLACE)
        source = explained["sources"][0]
        assert source["access"] == "columns" and source["blocks"] > 1, each.name
    assert chaos.differing(found.plan) == []


def test_followers_answer_by_column_as_the_leader_does(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        found.done(f"USE a.b; {FILL}")
        all_answer_alike(found)
        found.led().script(CHANGES.format(1, 50, 20_001), **PLACE)
        all_answer_alike(found)
        before = found.led()
        before.kill()
        found.led(but=before).script(CHANGES.format(2, 51, 20_002), **PLACE)
        before.start()
        all_answer_alike(found)

"""A script that hands the loop back at every tick answers as one that never does, however many run
meanwhile: what its functions hold, and what was raised on the way, comes back with its stack. On
the compiled tree those functions are C."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from actors.execution.scheduler import FiberScheduler
from protocol.requests import ScriptAnswer
from tests.nodes import Running

CALLERS = 12
ROWS = 40

SCRIPTS = (
    "SELECT n, n * 2 AS twice FROM thing WHERE owner = $me ORDER BY n DESC",
    "SELECT owner, count() AS many, math::sum(n) AS all FROM thing GROUP BY owner ORDER BY owner",
    "LET $mine = SELECT VALUE n FROM thing WHERE owner = $me ORDER BY n;"
    " FOR $n IN $mine { IF $n % 7 = 3 { RETURN [$me, $n, (SELECT VALUE n FROM thing"
    " WHERE owner = $me AND n > $parent.n ORDER BY n LIMIT 1)] } }; RETURN 'never'",
    "BEGIN; UPDATE thing SET n = n + 0 WHERE owner = $me RETURN NONE;"
    " LET $n = SELECT VALUE n FROM thing WHERE owner = $me ORDER BY n;"
    " RETURN $n[0 - 1] + type::int('none'); COMMIT",
    "FOR $n IN 0..20 { LET $each = SELECT VALUE n FROM thing WHERE owner = $me ORDER BY n };"
    " CREATE thing:0 SET n = 0",
)
"""Some end in a refusal, whose place in the text is told too."""


def told(answer: ScriptAnswer) -> Any:
    """What an answer says that another run must say too."""
    refusal = answer.refusal
    why = None if refusal is None else (refusal.code, refusal.message, refusal.detail)
    return [result.value for result in answer.results], why


async def test_a_pause_at_every_tick_changes_no_answer(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": n, "n": n, "owner": n % CALLERS} for n in range(ROWS * CALLERS)]
    make = "INSERT INTO thing $rows RETURN NONE; CREATE thing:all SET n = 0"
    await node.values(make, {"rows": rows})
    asked = [(script, {"me": me}) for me in range(CALLERS) for script in SCRIPTS]
    alone = [told(await node.answer(script, given)) for script, given in asked]
    assert {why and why[0] for _, why in alone} > {None, "AlreadyExists"}

    monkeypatch.setattr(FiberScheduler, "slice_us", 0)
    try:
        raise KeyError("handled here all the time")
    except KeyError as handled:
        counts = [node.answer("UPDATE thing:all SET n = n + 1") for _ in asked]
        answers = await asyncio.gather(*(node.answer(*one) for one in asked), *counts)
        still = sys.exception() is handled
    assert still, "an exception that is handled on the loop belongs to no script"
    assert [told(answer) for answer in answers[: len(asked)]] == alone
    assert [answer.refusal for answer in answers[len(asked) :]] == [None] * len(counts)
    assert await node.values("SELECT VALUE n FROM thing:all") == [[len(asked)]]

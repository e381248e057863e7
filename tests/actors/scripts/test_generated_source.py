"""Statements become Python that is run: nothing of a caller's text stands in that source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from language import batchwork, generate
from tests.nodes import running

ODD = 'canary"); import os; os._exit(1) #'
"""What would be a disaster as source."""

SCRIPT = f"""
DEFINE TABLE canary_t;
DEFINE FUNCTION canary_f($canary_n: int) -> int {{ $canary_n + 1 }};
INSERT INTO canary_t [{{ id: 'canary1', canary_a: 1, canary_b: 'canary', `{ODD}`: 2 }},
    {{ id: 'canary2', canary_a: 5, canary_b: '{ODD}', `{ODD}`: 3 }}];
SELECT canary_a + `{ODD}` * 2 AS canary_sum, string::upper(canary_b) AS `{ODD}`,
    fn::canary_f(canary_a) AS canary_called, canary_o.canary_p[0] AS canary_deep
    FROM canary_t
    WHERE canary_b IN ['canary', '{ODD}', $canary] AND `{ODD}` > 1 AND canary_b ~ 'can.*'
        AND (canary_b = '{ODD}' OR canary_a < 9) AND NOT (canary_a = 77)
    ORDER BY canary_sum;
SELECT canary_b, count() AS canary_n, sum(`{ODD}`) AS canary_m
    FROM canary_t GROUP BY canary_b;
UPDATE canary_t SET `{ODD}` = canary_a + 1, canary_x = '{ODD}' WHERE canary_b = '{ODD}';
SELECT `{ODD}` FROM canary_t WHERE canary_x = '{ODD}'
"""


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every source that was made in the test, for tables of one row too."""
    monkeypatch.setattr(batchwork, "_FEW", 0)
    made: list[str] = []

    def kept(source: str, *more: Any) -> Any:
        made.append(source)
        return compile(source, *more)

    monkeypatch.setattr(generate, "compile", kept, raising=False)
    return made


async def test_no_text_of_a_caller_becomes_source(tmp_path: Path, sources: list[str]) -> None:
    async with running(tmp_path / "store") as here:
        found = await here.values(SCRIPT, {"canary": ODD})
    assert found[-1] == [{ODD: 6}]
    assert len(sources) >= 4
    assert not [source for source in sources if "canary" in source or "_exit" in source]

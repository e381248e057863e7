"""The checker of the pages' examples finds what is wrong with a page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.docs.examples import Play, blocks, matches, play
from tests.nodes import running

RIGHT: Final = """
```store
DEFINE TABLE t;
CREATE t SET at = time::now(), n = 1, tags = ['a', 'b'];
-- = [{ id: t:u'…', at: d'…', n: 1,
--      tags: ['a', …] }]
SELECT n FROM t;
-- = [{ n: 1 }]
RETURN 1 / 0
-- ! DivisionByZero: division by zero
```
```python
for number in range(2):
    print("n", number)
# = n 0
# = n 1
```
"""


async def wrong(page: str, directory: Path) -> list[str]:
    async with running(directory / "store") as node:
        run = Play("page", node)
        await run.page(page)
    return run.wrong


async def test_a_page_that_is_right(tmp_path: Path) -> None:
    assert await wrong(RIGHT, tmp_path) == []


async def test_what_is_answered_is_written_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        RIGHT.replace("{ n: 1 }]\nRETURN", "{ n: 2 }]\nRETURN").replace("# = n 1\n", "")
    )
    async with running(tmp_path / "store") as node:
        assert await play(page, node, accept=True) == []
        assert page.read_text() == RIGHT
        page.write_text("```python\nprnt()\n```\n")
        (broken,) = await play(page, node, accept=True)
    assert "NameError" in broken


def test_what_stands_for_something() -> None:
    assert matches("{ a: …, b: '1.…' }", "{ a: 12ms5us, b: '1.2' }")
    assert matches("[{ a: 1, … }, …]", "[{ a: 1, b: { c: [2] } }, { a: 2 }]")
    assert not matches("{ a: … }", "{ a: NULL }")
    assert not matches("{ a: … }", "{ a: 'text' }")
    assert not matches("{ a: 1, … }", "{ a: 2, b: 3 }")
    assert not matches("[{ a: 1, … }]", "[{ a: 1 }, { a: 2 }]")
    assert not matches("'1.…'", "'2.1'")
    assert not matches("[1]", "[1, 2]") and not matches("[1, 2]", "[1]")


def test_where_a_block_stands() -> None:
    assert [(one.language, one.line) for one in blocks(RIGHT)] == [("store", 3), ("python", 13)]

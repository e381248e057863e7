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
PLANTED: Final = {
    "a wrong answer": ("{ n: 1 }]\nRETURN", "{ n: 2 }]\nRETURN"),
    "another type": ("n: 1,", "n: 1.0,"),
    "a field too many": ("n: 1,", "n: 1, m: 1,"),
    "a field too few": (" n: 1,", ""),
    "a datetime where an id stands": ("u'…'", "d'…'"),
    "a number where a datetime stands": ("d'…'", "…"),
    "no answer": ("-- = [{ n: 1 }]\n", ""),
    "an answer of what answers none": ("DEFINE TABLE t;", "DEFINE TABLE t;\n-- = []"),
    "a broken statement": ("SELECT n FROM t", "SELECT n FRM t"),
    "a refused statement": ("SELECT n FROM t", "SELECT n FROM u"),
    "no refusal": ("-- ! DivisionByZero: division by zero\n", ""),
    "another refusal": ("by zero\n", "by nought\n"),
    "a statement behind the refused one": ("RETURN 1 / 0", "RETURN 1 / 0; RETURN 2"),
    "a statement behind the end": ("SELECT n FROM t;", "SELECT n FROM t; RETURN NONE;"),
    "a refusal in another place": (
        "RETURN 1 / 0\n-- ! DivisionByZero: division by zero\n",
        "BEGIN;\nRETURN 1 / 0;\nCOMMIT\n-- ! DivisionByZero: division by zero\n",
    ),
    "a line too few": ("# = n 1\n", ""),
    "a wrong line": ("# = n 1\n", "# = n 2\n"),
    "an error": ("print(", "prnt("),
}


async def wrong(page: str, directory: Path) -> list[str]:
    """What is wrong with a page."""
    async with running(directory / "store") as node:
        run = Play("page", node)
        await run.page(page)
    return run.wrong


async def test_a_page_that_is_right(tmp_path: Path) -> None:
    assert await wrong(RIGHT, tmp_path) == []


async def test_whatever_is_planted_is_found(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        for planted, (old, new) in PLANTED.items():
            assert old in RIGHT, planted
            await node.values("DROP DATABASE shop.main; DEFINE DATABASE shop.main")
            run = Play("page", node)
            await run.page(RIGHT.replace(old, new))
            assert run.wrong, planted


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

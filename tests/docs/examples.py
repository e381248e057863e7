"""The examples of the pages: blocks that run as they stand, with what they answer beneath.

A block of `store` is one script. What a statement answers stands below it in a comment, as the
language writes it, in one line or more; one that has nothing below it answers NONE:

```
DEFINE TABLE person;
CREATE person:ana SET name = 'Ana', born = d'1991-02-03T00:00:00Z';
-- = [{ id: person:ana, name: 'Ana', born: d'1991-02-03T00:00:00Z' }]
CREATE person:ana SET name = 'Anna'
-- ! AlreadyExists: record person:ana exists
```

A refusal stands below the statement that was refused, and behind it nothing but the rest of its
transaction. What differs from run to run is `…`: within quotes (`d'…'`, `u'…'`, `'1.…'`)
some text there, so the type is still held against the answer; as a value a number or a duration;
and as the last one between brackets whatever else is there: `{ name: 'g', … }`.

What a block of `python` prints stands below it, in lines that begin with `# = `. The blocks of a
page run in their order, on one node whose database `shop.main` is empty; those of Python see the
names of those before them.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from language import tree
from language.parser import parse
from protocol.errors import Refusal
from protocol.requests import ScriptAnswer
from tests.cases.test_cases import lines_of
from tests.nodes import PASSWORD, Running

FENCED: Final = re.compile(r"^```(store|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN: Final = re.compile(r"^-- ([=!] .*(?:\n--   +.*)*)\n?", re.MULTILINE)
"""One answer: its first line, and those that go on."""
PRINTED: Final = re.compile(r"^ *# = (.*)$", re.MULTILINE)
TOKEN: Final = re.compile(
    r"[bdmu]?'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`|…|[\[\]{}:,]|[^\s\[\]{}:,'`…]+"
)
NUMBER: Final = re.compile(r"-?[0-9][0-9a-z.]*")
WIDTH: Final = 100
ADDRESS: Final = "127.0.0.1:8001"
"""Where the node of an example in Python listens."""
PASSWORDS: Final = re.compile(r'password="[^"]*"')


@dataclass
class Block:
    """The code of one block, and the line of the page at which it begins."""

    language: str
    code: str
    line: int


@dataclass
class Example:
    """A statement of a block, where its text ends, and the answers that stand below it."""

    end: int
    shown: list[re.Match[str]] = field(default_factory=list)


def blocks(page: str) -> list[Block]:
    return [
        Block(found[1], found[2], page.count("\n", 0, found.start()) + 2)
        for found in FENCED.finditer(page)
    ]


def statements(page: str) -> Iterator[tree.Statement]:
    """The statements of a page's examples, those inside of others among them. Of a block that is
    refused as a text there are none."""
    for block in blocks(page):
        with contextlib.suppress(Refusal):
            if block.language == "store":
                yield from _within(parse(block.code))


def _within(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for one in value:
            yield from _within(one)
    elif hasattr(value, "__dataclass_fields__"):
        yield value
        for name in value.__dataclass_fields__:
            yield from _within(getattr(value, name))


# --- comparing ------------------------------------------------------------------------------------


def matches(shown: str, found: str) -> bool:
    wanted, had = TOKEN.findall(shown), TOKEN.findall(found)
    at = 0
    for number, token in enumerate(wanted):
        before, after = wanted[max(number - 1, 0)], [*wanted, ""][number + 1]
        if token == "…" and before in ("[", "{", ",") and after in ("]", "}"):
            at = _closing(had, at)
        elif at < len(had) and _same(token, had[at]):
            at += 1
        else:
            return False
    return at == len(had)


def _same(shown: str, found: str) -> bool:
    if shown == "…":
        return NUMBER.fullmatch(found) is not None
    if "…" in shown:
        return re.fullmatch(re.escape(shown).replace("…", ".*"), found) is not None
    return shown == found


def _closing(tokens: list[str], at: int) -> int:
    """Where the bracket is closed in which a token stands."""
    depth = 0
    while at < len(tokens):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(tokens[at], 0)
        if depth < 0:
            return at
        at += 1
    return at


# --- running --------------------------------------------------------------------------------------


class Play:
    """The run of a page's blocks, one after the other."""

    def __init__(self, name: str, node: Running, address: tuple[str, int] = ("", 0)) -> None:
        self._name = name
        self._node = node
        self._address = "{}:{}".format(*address)
        self._names: dict[str, Any] = {}
        self.wrong: list[str] = []
        """What is not as the page says."""
        self.broken: list[str] = []
        """Of that, what can't be written into it as an answer."""

    async def page(self, page: str) -> str:
        """Run all of a page. Answers the page with the answers that there are now."""
        found = []
        for block in blocks(page):
            run = self._store if block.language == "store" else self._python
            found.append(await run(block))
        anew = iter(found)
        return FENCED.sub(lambda old: f"```{old[1]}\n{next(anew)}```", page)

    def _differs(self, block: Block, at: int, shown: list[str], found: list[str]) -> None:
        line = block.line + block.code.count("\n", 0, at)
        told = ["  shown", *shown, "  found", *found]
        self.wrong.append(f"{self._name}:{line}\n" + "\n".join(told))

    async def _store(self, block: Block) -> str:
        answer = await self._node.answer(block.code)
        found = lines_of(answer)
        if answer.refusal is not None:
            found[len(answer.results) :] = [""] * (_end_of(answer) - len(found)) + found[-1:]
        idle = _idle(block.code, answer)
        if idle:
            self._differs(block, 0, ["all of it ran"], idle)
            self.broken.append(self.wrong[-1])
        code = block.code
        for number, example in reversed(list(enumerate(_examples(code)))):  # ends move
            answers = found[number : number + 1]
            answers = [answer for answer in answers if answer not in ("", "= NONE")]
            shown = [" ".join(re.sub(r"\n--", " ", one[1]).split()) for one in example.shown]
            if len(shown) == len(answers) and all(map(_agree, shown, answers)):
                continue
            self._differs(block, example.end, shown, answers)
            code = _rewritten(code, example, answers)
        return code

    async def _python(self, block: Block) -> str:
        code = PASSWORDS.sub(f'password="{PASSWORD}"', block.code.replace(ADDRESS, self._address))
        printed = io.StringIO()
        try:
            await asyncio.to_thread(self._execute, code, printed)
        except Exception:
            self._differs(block, 0, ["no error"], traceback.format_exc().splitlines()[-4:])
            self.broken.append(self.wrong[-1])
            return block.code
        shown, found = PRINTED.findall(block.code), printed.getvalue().splitlines()
        if len(shown) == len(found) and all(map(_same_line, shown, found)):
            return block.code
        self._differs(block, 0, shown, found)
        bare = re.sub(r"^ *# = .*\n", "", block.code, flags=re.MULTILINE)
        return bare + "".join(f"# = {line}\n" for line in found)

    def _execute(self, code: str, printed: io.StringIO) -> None:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, self._name, "exec", dont_inherit=True), self._names)


def _end_of(answer: ScriptAnswer) -> int:
    """The number of the statement at which a script ended, from 1. A text that is refused as such
    is one statement."""
    if answer.refusal is None:
        return len(answer.results)
    number = answer.refusal.detail.get("statement", 1)
    assert isinstance(number, int)
    return number


def _idle(code: str, answer: ScriptAnswer) -> list[str]:
    """The kinds of statements behind the end of a script: none is to stand there, but for the rest
    of the transaction that was refused."""
    with contextlib.suppress(Refusal):
        rest = [type(one) for one in parse(code).statements[_end_of(answer) :]]
        if answer.refusal is None or tree.Commit in rest[:-1] or rest[-1:] != [tree.Commit]:
            return [one.__name__ for one in rest]
    return []


def _agree(shown: str, found: str) -> bool:
    return shown[0] == found[0] and (
        matches(shown[2:], found[2:]) if shown[0] == "=" else _same_line(shown, found)
    )


def _same_line(shown: str, found: str) -> bool:
    return re.fullmatch(re.escape(shown).replace("…", ".*"), found) is not None


def _examples(code: str) -> list[Example]:
    """The statements of a block, each with the answers between it and the next one."""
    try:
        begins = [statement.at for statement in parse(code).statements]
    except Refusal:
        begins = [0]
    found = [Example(end) for end in [*begins[1:], len(code)]]
    for shown in SHOWN.finditer(code):
        next(one for one in found if shown.start() < one.end).shown.append(shown)
    return found


def _rewritten(code: str, example: Example, answers: list[str]) -> str:
    if example.shown:
        start, end = example.shown[0].start(), example.shown[-1].end()
    else:
        start = end = len(code[: example.end].rstrip()) + 1
    lines = "".join(f"{line}\n" for answer in answers for line in _laid_out(answer))
    return code[:start] + lines + code[end:]


def _laid_out(answer: str) -> list[str]:
    """An answer as comments: the items of a long array below each other, broken at commas."""
    items = [answer]
    if len(answer) > WIDTH - 3 and answer.startswith("= [{"):
        items = re.split(r"(?<=\},) (?=\{)", answer)
    found = []
    for number, item in enumerate(items):
        bound = item if item.startswith("! ") else re.sub(r"(?<!,) ", "\0", item)
        begins = "--    " if number else "-- "
        found += textwrap.wrap(
            bound,
            WIDTH,
            initial_indent=begins,
            subsequent_indent="--      ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return [line.replace("\0", " ") for line in found]


async def play(
    path: Path, node: Running, address: tuple[str, int] = ("", 0), *, accept: bool = False
) -> list[str]:
    """Run the examples of a page; answers what is not as it says.

    :param address: of the node's wire surface, for those in Python
    :param accept: write what is answered now into the page, and answer what fails all the same
    """
    run = Play(path.name, node, address)
    old = path.read_text(encoding="utf-8")
    anew = await run.page(old)
    if accept and anew != old:
        path.write_text(anew, encoding="utf-8")
    return run.broken if accept else run.wrong

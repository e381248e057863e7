"""Every way on which a statement could come by what it may not read.

The places where an expression may stand are taken from the nodes of the language themselves: each
field of each node that can hold one, and each that holds a path or the name of a table. A node or
a field without a row fails. In each place stands, one after the other, every form that reads a
record; who may do all else but not read that table is refused, and hears no more than if it were
absent.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from actors.rights import Privileges
from language import tree
from language.parser import parse
from protocol.errors import Refusal
from protocol.paths import Path
from protocol.requests import Caller
from protocol.rights import ALL, Verb
from tests.architecture.sources import Source, called, files
from tests.callers import Granted, declare
from tests.nodes import OWNER, Running

CANARY: Final = "canary5d20"
SETTING: Final = f"""
DEFINE TABLE secret; CREATE secret:1 SET word = '{CANARY}', n = 1, many = ['{CANARY}'], of = open:1;
DEFINE INDEX of ON secret FIELDS of;
DEFINE TABLE open; CREATE open:1 SET n = 1, link = secret:1, links = [secret:1];
DEFINE FIELD m ON open TYPE any; DEFINE INDEX near ON open FIELDS v VECTOR DIMENSION 2;
DEFINE TOPIC q; DEFINE TOPIC dead; DEFINE GROUP g ON q DEADLINE 1m; DEFINE READER r ON q;
PUBLISH INTO q VALUE 1; DEFINE SPACE c; SET 'k' IN c VALUE 1; DEFINE VAULT s
"""
ABSENT: Final = "there is no table shop.main.secret"
FORMS: Final = {
    "a link": "secret:1.word",
    "a link by its name": "secret:1['word']",
    "all of a link": "secret:1.*",
    "links": "[secret:1].word",
    "a link that is computed": "type::record('secret', 1).word",
    "a subquery": "(SELECT VALUE word FROM secret)",
    "a subquery of one": "(SELECT VALUE word FROM ONLY secret:1)",
    "a subquery that counts": "(SELECT count() FROM secret GROUP ALL)",
    "links backwards": "(SELECT VALUE <-secret.of FROM ONLY open:1)",
}
PLACES: Final[dict[str, str]] = {
    # --- inside expressions; `@` is what reads
    "RETURN [@]": "Array.items",
    "RETURN { a: @ }": "Object.fields",
    "RETURN open:[@]": "RecordLiteral.id",
    "RETURN (@).x": "Attribute.of",
    "RETURN (@)[0]": "Index.of",
    "RETURN [1, 2][@]": "Index.index",
    "RETURN (@)[*]": "Each.of",
    "RETURN ((@).x)[0]": "Collected.of",
    "RETURN NOT @": "Unary.operand",
    "RETURN @ = 1": "Binary.left",
    "RETURN 1 = @": "Binary.right",
    "RETURN @..5": "Range.low",
    "RETURN 1..@": "Range.high",
    "RETURN type::string(@)": "Call.arguments",
    "RETURN array::map([1], |$x| @)": "Closure.body",
    "RETURN (SELECT @ FROM open)": "Subquery.select",
    "RETURN CASE @ WHEN 1 THEN 2 END": "Choice.subject",
    "RETURN CASE WHEN @ = 1 THEN 2 END": "Choice.branches",
    "RETURN CASE WHEN false THEN 1 ELSE @ END": "Choice.otherwise",
    "MEASURE INDEX near ON open WITH (@)": "MeasureIndex.over MeasureOver.vectors",
    "REBUILD INDEX near ON open MEASURE WITH (@)": "RebuildIndex.over",
    # --- records
    "SELECT @ AS x FROM open": "Select.columns Column.expression",
    "SELECT VALUE @ FROM open": "",
    "SELECT * FROM @": "Select.sources ExpressionTarget.expression",
    "SELECT * FROM open:[@]..[9]": "RecordRange.low",
    "SELECT * FROM open:[1]..[@]": "RecordRange.high",
    "SELECT * FROM open WHERE @ = 1": "Select.where",
    "SELECT * FROM open WHERE v NEAREST @ TO [1, 2]": "Nearest.count",
    "SELECT * FROM open WHERE v NEAREST 1 TO [@]": "Nearest.to",
    "SELECT * FROM open WHERE v NEAREST 1 TO [1, 2] PROBES @": "Nearest.probes",
    "SELECT count() FROM open GROUP BY @": "Select.group",
    "SELECT count() AS c FROM open GROUP ALL HAVING @ = 1": "Select.having",
    "SELECT * FROM open ORDER BY @": "Select.order Order.expression",
    "SELECT * FROM open LIMIT @": "Select.limit",
    "SELECT * FROM open LIMIT 1 START @": "Select.start",
    "EXPLAIN ANALYZE SELECT * FROM open WHERE @ = 1": "Explain.statement",
    "CREATE @": "Create.target",
    "CREATE open CONTENT { x: @ }": "Create.data Content.value",
    "CREATE open SET x = @": "Set.assignments Assignment.value",
    "CREATE open RETURN @ AS x": "Create.returning Return.columns",
    "INSERT INTO open { x: @ }": "Insert.rows",
    "INSERT INTO open { id: 1 } ON DUPLICATE UPDATE SET x = @": "Insert.on_duplicate",
    "INSERT INTO open { id: 2 } RETURN @ AS x": "Insert.returning",
    "UPSERT @ SET x = 1": "Upsert.target",
    "UPSERT open:1 SET x = @": "Upsert.data",
    "UPSERT open:1 SET x = 1 RETURN @ AS x": "Upsert.returning",
    "UPDATE @ SET x = 1": "Update.target",
    "UPDATE open MERGE { x: @ }": "Update.data Merge.value",
    "UPDATE open SET x = 1 WHERE @ = 1": "Update.where",
    "UPDATE open SET x = 1 LIMIT @": "Update.limit",
    "UPDATE open SET x = 1 RETURN @ AS x": "Update.returning",
    "DELETE @": "Delete.target",
    "DELETE open WHERE @ = 1": "Delete.where",
    "DELETE open LIMIT @": "Delete.limit",
    "DELETE open RETURN @ AS x": "Delete.returning",
    # --- flow
    "LET $x = @": "Let.value",
    "RETURN @": "ReturnStatement.value",
    "@": "Script.statements Evaluate.value",
    "IF @ = 1 { 1 }": "If.branches",
    "IF false { 1 } ELSE { RETURN @ }": "If.otherwise Block.statements",
    "FOR $x IN [@] { 1 }": "For.items",
    "FOR $x IN [1] { RETURN @ }": "For.body",
    "THROW @": "Throw.value",
    # --- keys
    "GET (@) FROM c": "GetKey.key",
    "SET (@) IN c VALUE 1": "SetKey.key",
    "SET 'k' IN c VALUE @": "SetKey.value",
    "SET 'k' IN c VALUE 1 EXPIRE @": "SetKey.expire",
    "SET 'k' IN c VALUE 1 EXPIRE AT @": "SetKey.expire_at",
    "SWAP (@) IN c EXPECT 1 VALUE 1": "SwapKey.key",
    "SWAP 'k' IN c EXPECT @ VALUE 1": "SwapKey.expect",
    "SWAP 'k' IN c EXPECT 1 VALUE @": "SwapKey.value",
    "SWAP 'k' IN c EXPECT 1 VALUE 1 EXPIRE @": "SwapKey.expire",
    "INCR (@) IN c": "IncrKey.key",
    "INCR 'k' IN c BY @": "IncrKey.by",
    "DELETE (@) FROM c": "DeleteKey.key",
    "EXPIRE (@) IN c 1h": "ExpireKey.key",
    "EXPIRE 'k' IN c @": "ExpireKey.expire",
    "PERSIST (@) IN c": "PersistKey.key",
    "LOCK (@) IN c HOLDER 'h' EXPIRE 1m": "LockKey.key",
    "LOCK 'l' IN c HOLDER @ EXPIRE 1m": "LockKey.holder",
    "LOCK 'l' IN c HOLDER 'h' EXPIRE @": "LockKey.expire",
    "UNLOCK (@) IN c HOLDER 'h'": "UnlockKey.key",
    "UNLOCK 'l' IN c HOLDER @": "UnlockKey.holder",
    "KEYS FROM c PREFIX @": "ListKeys.prefix",
    "KEYS FROM c AFTER @": "ListKeys.after",
    "KEYS FROM c LIMIT @": "ListKeys.limit",
    "DROP KEYS IN c PREFIX @": "DropKeys.prefix",
    # --- vaults
    "WRITE (@) IN VAULT s VALUE 1": "WriteSecret.id",
    "WRITE 'k' IN VAULT s VALUE @": "WriteSecret.value",
    "WRITE 'k' IN VAULT s VALUE 1 EXPECT VERSION @": "WriteSecret.expect",
    "REVEAL (@) FROM VAULT s": "RevealSecret.id",
    "REVEAL 'k' FROM VAULT s VERSION @": "RevealSecret.version",
    "ERASE (@) FROM VAULT s": "EraseSecret.id",
    "LIST FROM VAULT s PREFIX @": "ListSecrets.prefix",
    "LIST FROM VAULT s AFTER @": "ListSecrets.after",
    "LIST FROM VAULT s LIMIT @": "ListSecrets.limit",
    "INFO FOR AUDIT OF VAULT s BEFORE @": "InfoTrail.before",
    "INFO FOR AUDIT OF VAULT s LIMIT @": "InfoTrail.limit",
    # --- topics
    "TRIM TOPIC q BEFORE @": "TrimTopic.before",
    "PUBLISH INTO q VALUE @": "Publish.value",
    "PUBLISH INTO q VALUE 1 KEY @": "Publish.key",
    "PUBLISH INTO q VALUE 1 ID @": "Publish.id",
    "PUBLISH INTO q VALUE 1 HEADERS { a: @ }": "Publish.headers",
    "PUBLISH INTO q VALUE 1 DELAY @": "Publish.delay",
    "PUBLISH INTO q VALUE 1 AT @": "Publish.at_time",
    "PUBLISH INTO q VALUE 1 EXPECT @": "Publish.expect",
    "READ FROM q AFTER @": "ReadTopic.after",
    "READ FROM q AFTER 0 LIMIT @": "ReadTopic.limit",
    "READ FROM q AFTER 0 WAIT @": "ReadTopic.wait",
    "DEFINE READER s ON q AT @": "DefineReader.position Position.value",
    "COMMIT READER r ON q AT @": "CommitReader.position",
    "ALTER READER r ON q SET POSITION @": "AlterReader.position",
    "DEFINE GROUP h ON q DEADLINE 1m AT @": "DefineGroup.position",
    "ALTER GROUP g ON q SET POSITION @": "AlterGroup.position",
    "TAKE @ FROM q AS g": "Take.count",
    "TAKE FROM q AS g MEMBER @": "Take.member",
    "TAKE FROM q AS g WAIT @": "Take.wait",
    "ACK q AS g RECEIPTS [@]": "Ack.receipts",
    "NACK q AS g RECEIPTS [@]": "Nack.receipts",
    "NACK q AS g RECEIPTS [] DELAY @": "Nack.delay",
    "NACK q AS g RECEIPTS [] ERROR @": "Nack.error",
    "EXTEND q AS g RECEIPTS [@] BY 1m": "Extend.receipts",
    "EXTEND q AS g RECEIPTS [] BY @": "Extend.by",
    "GIVE UP q AS g RECEIPTS [@]": "GiveUp.receipts",
    "GIVE UP q AS g RECEIPTS [] ERROR @": "GiveUp.error",
    "REDRIVE FROM dead TO q LIMIT @": "Redrive.limit",
    # --- what was kept
    "INFO FOR STATEMENTS BEFORE @": "InfoEntries.before",
    "INFO FOR STATEMENTS LIMIT @": "InfoEntries.limit",
    "INFO FOR HISTORY OF @": "InfoHistory.of",
    "INFO FOR HISTORY OF open:1 BEFORE @": "InfoHistory.before",
    "INFO FOR HISTORY OF open:1 LIMIT @": "InfoHistory.limit",
}
"""Statements, `@` being what reads, and the fields of nodes that each is the row of: they lie on
the way from the statement to what reads, in the tree."""

CONFINED: Final[dict[str, str]] = {
    "DEFINE FIELD x ON open TYPE any DEFAULT @": "DefineField.default",
    "DEFINE FIELD x ON open TYPE any VALUE @": "DefineField.value",
    "DEFINE FIELD x ON open TYPE any ASSERT @ = 1": "DefineField.assertion",
    "ALTER FIELD m ON open SET DEFAULT @": "AlterField.default",
    "ALTER FIELD m ON open SET VALUE @": "AlterField.value",
    "ALTER FIELD m ON open SET ASSERT @ = 1": "AlterField.assertion",
    "DEFINE FUNCTION made() { @ }": "DefineFunction.body",
    "MEASURE INDEX near ON open WHERE n = @": "MeasureOver.where",
    "SELECT * FROM open WHERE (@) NEAREST 1 TO [1, 2]": "Nearest.of",
}
"""Places that take a field, or an expression that would run for others. A read there is refused to
everybody, the owner of the store included: if it can't be seen before, when it runs."""
FOR_OTHERS: Final = ("BadRequest", "AssertFailed", "TypeRefused")

OWNED: Final[dict[str, str]] = {
    "KILL @": "Kill.id",
    "INFO FOR AUDIT OF ALL VAULTS NUMBER @": "InfoTrail.number",
}
"""What needs the owner of the node or the store before any of it is looked at."""

NO_FIELD: Final = "there is no field shop.main.open.link.word"
PATHS: Final[dict[str, tuple[str, str]]] = {
    "Select.fetch": ("SELECT * FROM open FETCH link", "Unknown"),
    "Select.omit": ("SELECT * OMIT link.word FROM open", "may"),
    "Select.split": ("SELECT * FROM open SPLIT link.many", "may"),
    "Select.back": ("SELECT <-secret.of AS x FROM open", "Unknown"),
    "Assignment.path": ("UPDATE open SET link.word = 1", "TypeRefused"),
    "Unset.paths": ("UPDATE open UNSET link.word", "may"),
    "DefineField.path": ("DEFINE FIELD link.word ON open TYPE any", "TypeRefused"),
    "AlterField.path": ("ALTER FIELD link.word ON open SET TYPE any", NO_FIELD),
    "DropField.path": ("DROP FIELD link.word ON open", NO_FIELD),
    "DefineIndex.fields": ("DEFINE INDEX x ON open FIELDS link.word", "may"),
}
"""Fields that hold a path, which may lead over a link, and what comes of it: only FETCH and `<-`
follow one."""

TABLES: Final[dict[str, str]] = {
    "RecordLiteral.table": "SELECT * FROM secret:1",
    "TableTarget.table": "SELECT * FROM secret",
    "RecordRange.table": "SELECT * FROM secret:1..9",
    "Insert.table": "INSERT INTO secret { id: 1 } IGNORE",
    "DefineField.table": "DEFINE FIELD x ON secret TYPE any",
    "AlterField.table": "ALTER FIELD x ON secret SET TYPE any",
    "DropField.table": "DROP FIELD x ON secret",
    "DefineIndex.table": "DEFINE INDEX x ON secret FIELDS n",
    "DropIndex.table": "DROP INDEX of ON secret",
    "CheckIndex.table": "CHECK INDEX of ON secret",
    "MeasureIndex.table": "MEASURE INDEX of ON secret",
    "RebuildIndex.table": "REBUILD INDEX of ON secret",
}
"""Fields that name a table."""


# --- the places there are -----------------------------------------------------------------------


def nodes() -> dict[str, type]:
    """The classes of all nodes."""
    found = {}
    for name in dir(tree):
        one = getattr(tree, name)
        if dataclasses.is_dataclass(one) and isinstance(one, type):
            found[one.__name__] = one
    return found


def places(fits: Callable[[set[type], str], bool]) -> set[str]:
    """Fields of nodes, by the classes in their types and their names."""
    names = {name: value for module in _modules() for name, value in vars(module).items()}
    found = set()
    for name, node in nodes().items():
        hints = typing.get_type_hints(node, names, names)
        for each in dataclasses.fields(node):
            if fits(set(_classes(hints[each.name])), each.name):
                found.add(f"{name}.{each.name}")
    return found


def _modules() -> list[Any]:
    return [sys.modules[name] for name in sys.modules if f"{name}.".startswith("language.tree.")]


def _classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    if hint == Path:
        yield Path
    else:
        for part in typing.get_args(hint):
            yield from _classes(part)


def with_expressions() -> set[str]:
    """Fields in which an expression may stand, however deep."""
    known = nodes()
    found: set[str] = set()
    holders = set(EXPRESSIONS)
    while more := _holding(holders) - found:
        found |= more
        holders |= {known[place.partition(".")[0]] for place in more}
    return found


def _holding(holders: set[type]) -> set[str]:
    return places(lambda types, _: bool(types & holders))


EXPRESSIONS: Final = typing.get_args(tree.Expression)


def rows(*tables: dict[str, str]) -> set[str]:
    """The places that rows are about."""
    return {place for table in tables for told in table.values() for place in told.split()}


def test_every_place_has_a_row() -> None:
    assert with_expressions() == rows(PLACES, CONFINED, OWNED)
    assert places(lambda types, _: Path in types) == PATHS.keys()
    assert places(lambda types, name: name == "table" and str in types) == TABLES.keys()


def test_each_row_is_about_its_places() -> None:
    for table in (PLACES, CONFINED, OWNED):
        for text, told in table.items():
            script = parse(text.replace("@", "secret:1.word"))
            assert set(told.split()) <= set(_ways(script)), text


def _ways(node: Any) -> list[str]:
    """The fields on the way to what reads."""
    if node == READING:
        return ["here"]
    if isinstance(node, tuple):
        return [way for part in node for way in _ways(part)]
    found = []
    if dataclasses.is_dataclass(node):
        for each in dataclasses.fields(node):
            ways = _ways(getattr(node, each.name))
            found += [f"{type(node).__name__}.{each.name}", *ways] if ways else []
    return found


READING: Final = tree.Attribute(tree.RecordLiteral("secret", tree.Constant(1)), "word")


def reading_functions() -> list[str]:
    """Functions of the language that would read a record by themselves, past every node."""
    found = []
    for source in files("language"):
        if source.path.startswith("language/functions/"):
            found += [line for line in called(source) if READS.fullmatch(line[1])]
    return [str(line) for line in found]


READS: Final = re.compile(r"(env|.*\.env|self\._env)\.(record|records|select|raw)")


def test_no_function_reads() -> None:
    assert reading_functions() == []
    planted = Source("language/functions/planted.py", "env.record(link)")
    assert [name for _, name in called(planted) if READS.fullmatch(name)] == ["env.record"]


# --- what is answered -----------------------------------------------------------------------------


@pytest.fixture
async def eve(node: Running) -> Caller:
    """A member who may do everything to the other table, the topics and the space, and nothing to
    the table that is read."""
    await node.values(SETTING)
    caller, granted = await declare(node.node, "eve", "member"), Granted(node.node)
    every = (Verb.READ, Verb.WRITE, Verb.CONSUME, Verb.DEFINE, Verb.INFO)
    for verb in every:
        for kind, name in (("table", "open"), ("topic", "q"), ("topic", "dead"), ("space", "c")):
            granted.grant("eve", verb, "shop", "main", name, kind=kind)
    for verb in (Verb.READ, Verb.WRITE, Verb.INFO, Verb.UNSEAL):
        granted.grant("eve", verb, "shop", "main", "s", kind="vault")
    return caller


def forms(text: str) -> Iterator[str]:
    """The statement with every form that may stand there."""
    for form in FORMS.values():
        script = text.replace("@", form)
        try:
            parse(script)
        except Refusal:
            assert form not in (FORMS["a link"], FORMS["a link by its name"]), script
        else:
            yield script


async def leaks(node: Running, eve: Caller) -> tuple[list[str], int]:
    """The scripts by which she came to something, and how many were tried."""
    found, count = [], 0

    async def ask(script: str, caller: Caller, expected: tuple[str, ...]) -> None:
        nonlocal count
        count += 1
        whole = script if "WAIT" in script else f"BEGIN; {script}; CANCEL"
        answer = await node.answer(whole, caller=caller)
        refusal = answer.refusal
        told = "may" if refusal is None else refusal.code
        if told == "Unknown" and refusal is not None and refusal.message != ABSENT:
            told = refusal.message
        if told not in expected or CANARY in repr(answer):
            found.append(f"{script}: {answer!r}, not {expected}")

    for text in PLACES:
        for script in forms(text):
            # Beside GROUP and NEAREST there is no row that a link could lead back to.
            rowless = "GROUP ALL" in text or "NEAREST" in text
            back = ("BadRequest",) if "<-" in script and rowless else ()
            await ask(script, eve, ("Unknown", *back))
    for text in CONFINED:
        for script in forms(text):
            await ask(f"{script}; CREATE open:7 SET n = 1; fn::made()", OWNER, FOR_OTHERS)
    for text in OWNED:
        for script in forms(text):
            await ask(script, eve, ("NotAllowed",))
    for text, told in PATHS.values():
        await ask(text, eve, (told,))
    for text in TABLES.values():
        await ask(text, eve, ("Unknown",))
    return found, count


async def test_no_place_lets_a_record_be_read(
    node: Running, eve: Caller, figure: Callable[[str, object], None]
) -> None:
    found, count = await leaks(node, eve)
    assert not found, "\n".join(found)
    figure("S7 read paths", f"{count} statements on {len(rows(PLACES, CONFINED, OWNED))} places")


async def test_a_gate_that_lets_all_read_is_found(
    node: Running, eve: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Privileges, "_judge", lambda self, securable: (ALL, True, ()))
    found, _ = await leaks(node, eve)
    assert len(found) > len(PLACES)

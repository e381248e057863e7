"""Every statement and every operation on a key, by who runs it: what each is answered.

Who asks: the store-wide owner, editor and viewer; a member without grants, one who holds just what
is needed, and one who holds everything else; the owner of the database, and that of a namespace
beside it. Whoever has no session is refused before any statement (`tests/surfaces/matrix.py`). A
handler, a subject of INFO or an operation without a row fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, get_args

import pytest

from actors.rights import Privileges
from actors.scripts.handlers import HANDLERS, SUBJECTS, handles, informs
from language import tree
from language.parser import parse
from protocol import spaces
from protocol.errors import BadRequest, NotAllowed, NotASpace, Refusal, Unknown
from protocol.requests import Caller
from protocol.rights import ALL, NOTHING, OWN, READ, VERBS, SecurableKind
from protocol.spaces import KeyOperation
from tests.callers import declare
from tests.keys import ask_keys
from tests.nodes import OWNER, Running

SETTING: Final = """
DEFINE TABLE u; CREATE u:1 SET n = 1;
DEFINE FIELD n ON u TYPE any; DEFINE INDEX i ON u FIELDS n;
DEFINE INDEX near ON u FIELDS v VECTOR DIMENSION 2;
DEFINE TOPIC q; DEFINE TOPIC dead; DEFINE GROUP g ON q DEADLINE 1m; DEFINE READER r ON q;
PUBLISH INTO q VALUE 1; DEFINE SPACE c; SET 'k' IN c VALUE 1;
DEFINE DATABASE shop.spare; DEFINE NAMESPACE spare; DEFINE NAMESPACE bank;
DEFINE FUNCTION f() { 1 }; DEFINE VAULT s; DEFINE REPLICA n1 PEER 'n1:1';
DEFINE ANALYZER a TOKENIZERS class;
DEFINE USER other ROLE owner PASSWORD 'correct horse battery'
"""
ROLES: Final = ("editor", "viewer", "member")

HIDDEN: Final = "Unknown"
MAY: Final = "may"
ON_U, ON_Q, ON_C = "TABLE shop.main.u", "TOPIC shop.main.q", "SPACE shop.main.c"
ON_S = "VAULT shop.main.s"
ON_SHOP, ON_MAIN = "NAMESPACE shop", "DATABASE shop.main"


class Row(NamedTuple):
    """A statement, and what each is answered: that it may, that there is no such thing, or what it
    needs. A store-wide owner may everything."""

    text: str
    editor: str
    viewer: str
    member: str
    owner: str
    """Of shop.main."""
    other: str
    """The owner of a namespace that the statement is not about."""
    needs: str = ""
    """What a member needs to be granted, where that is enough."""


def of(text: str, verb: str, securable: str, *, both: str = "", given: bool = True) -> Row:
    """A statement that needs one verb on something, or `both` of two.

    :param given: False: they alone don't do, for it names another thing too
    """
    held = {"editor": ("READ", "WRITE", "CONSUME", "DEFINE"), "viewer": ("READ", "INFO")}
    answers = []
    for role in ("editor", "viewer"):
        missing = [each for each in (both or verb).split(", ") if each not in held[role]]
        answers.append(f"{', '.join(missing)} ON {securable}" if missing else MAY)
    needs = f"{both or verb} ON {securable}"
    owner = needs if securable == ON_SHOP else MAY
    return Row(text, answers[0], answers[1], HIDDEN, owner, HIDDEN, needs if given else "")


def owns(
    text: str, securable: str, member: str | None = None, owner: str = "", other: str | None = None
) -> Row:
    """A statement that needs the owner of something."""
    needs = f"OWNER OF {securable}"
    member = needs if member is None else member
    return Row(text, needs, needs, member, owner or member, member if other is None else other)


def sealed(text: str, verb: str) -> Row:
    """A statement on a vault: no role but that of an owner shows that there is one."""
    return Row(text, HIDDEN, HIDDEN, HIDDEN, MAY, HIDDEN, f"{verb} ON {ON_S}")


def anybody(text: str) -> Row:
    return Row(text, MAY, MAY, MAY, MAY, MAY)


def nobody(text: str) -> Row:
    """About a user that only a store-wide owner sees."""
    return Row(text, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN)


WRITES_AND_READS: Final = "READ, WRITE"
DEFINES_AND_READS: Final = "READ, DEFINE"

ROWS: Final[dict[str, list[Row]]] = {
    # --- records
    "Select": [
        of("SELECT * FROM u", "READ", ON_U),
        of("SELECT * FROM u:1", "READ", ON_U),
        of("SELECT * FROM [u:1]", "READ", ON_U),
        of("SELECT * FROM u:1..5", "READ", ON_U),
        of("SELECT count() FROM u GROUP ALL", "READ", ON_U),
    ],
    "Create": [
        of("CREATE u", "WRITE", ON_U),
        of("CREATE u:2 RETURN NONE", "WRITE", ON_U),
        of("CREATE u:2 RETURN AFTER", "", ON_U, both=WRITES_AND_READS),
    ],
    "Insert": [
        of("INSERT INTO u [{ n: 2 }]", "WRITE", ON_U),
        of("INSERT INTO u [{ id: 1 }] IGNORE", "", ON_U, both=WRITES_AND_READS),
        of(
            "INSERT INTO u { id: 1 } ON DUPLICATE UPDATE SET n = 2", "", ON_U, both=WRITES_AND_READS
        ),
    ],
    "Upsert": [
        of("UPSERT u:1 CONTENT { n: 2 }", "WRITE", ON_U),
        of("UPSERT u:1 SET n = n + 1", "", ON_U, both=WRITES_AND_READS),
    ],
    "Update": [
        of("UPDATE u SET n = 2", "WRITE", ON_U),
        of("UPDATE u:1 SET n = 2", "WRITE", ON_U),
        of("UPDATE u SET n = 2 LIMIT 1", "WRITE", ON_U),
        of("UPDATE u SET n += 2", "", ON_U, both=WRITES_AND_READS),
        of("UPDATE u SET n = 2 WHERE n = 1", "", ON_U, both=WRITES_AND_READS),
        of("UPDATE u SET n = 2 RETURN BEFORE", "", ON_U, both=WRITES_AND_READS),
    ],
    "Delete": [
        of("DELETE u", "WRITE", ON_U),
        of("DELETE u:1", "WRITE", ON_U),
        of("DELETE u RETURN BEFORE", "", ON_U, both=WRITES_AND_READS),
    ],
    "Explain": [
        of("EXPLAIN SELECT * FROM u", "READ", ON_U),
        of("EXPLAIN SELECT * FROM u:1", "READ", ON_U),
        of("EXPLAIN ANALYZE SELECT * FROM u:1", "READ", ON_U),
        of("EXPLAIN UPDATE u SET n = 1 WHERE n = 2", "READ", ON_U),
        of("EXPLAIN ANALYZE DELETE u:1", "READ", ON_U),
    ],
    # --- flow
    "Let": [anybody("LET $x = 1"), of("LET $x = (SELECT * FROM u)", "READ", ON_U)],
    "ReturnStatement": [anybody("RETURN 1"), of("RETURN u:1.n", "READ", ON_U)],
    "Evaluate": [
        anybody("1 + 1"),
        of("u:1.n", "READ", ON_U),
        Row("fn::f()", MAY, MAY, HIDDEN, MAY, HIDDEN),  # it needs no more than to see the database
    ],
    "If": [anybody("IF true { 1 }"), of("IF u:1.n = 1 { 1 }", "READ", ON_U)],
    "For": [anybody("FOR $x IN [1] { 1 }"), of("FOR $x IN [1] { DELETE u }", "WRITE", ON_U)],
    "Throw": [of("THROW u:1.n", "READ", ON_U)],
    "Begin": [anybody("BEGIN; COMMIT")],
    "Commit": [anybody("BEGIN; COMMIT")],
    "Cancel": [anybody("BEGIN; CANCEL")],
    # --- places
    "Use": [
        Row("USE shop.main", MAY, MAY, HIDDEN, MAY, HIDDEN),
        Row("USE NAMESPACE shop", MAY, MAY, HIDDEN, MAY, HIDDEN),
    ],
    "DefineNamespace": [
        Row("DEFINE NAMESPACE made", MAY, *("DEFINE ON STORE",) * 4),
        Row("DEFINE NAMESPACE shop", MAY, *("DEFINE ON STORE",) * 4),
    ],
    "DefineDatabase": [of("DEFINE DATABASE shop.made", "DEFINE", ON_SHOP)],
    "DefineTable": [
        of("DEFINE TABLE made", "DEFINE", ON_MAIN),
        of(
            "DEFINE TABLE made ON CHANGE PUBLISH INTO q",
            "",
            ON_MAIN,
            both="READ, DEFINE",
            given=False,
        ),
    ],
    "DropNamespace": [owns("DROP NAMESPACE spare", "NAMESPACE spare", HIDDEN)],
    "DropDatabase": [owns("DROP DATABASE shop.spare", "DATABASE shop.spare", HIDDEN)],
    "DropTable": [of("DROP TABLE u", "DEFINE", ON_MAIN)],
    "AlterTable": [
        of("ALTER TABLE u SET COMMENT 'x'", "DEFINE", ON_U),
        of(
            "ALTER TABLE u SET ON CHANGE PUBLISH INTO q",
            "",
            ON_U,
            both="READ, DEFINE",
            given=False,
        ),
    ],
    "DefineField": [of("DEFINE FIELD m ON u TYPE any", "DEFINE", ON_U)],
    "AlterField": [of("ALTER FIELD n ON u SET COMMENT 'x'", "DEFINE", ON_U)],
    "DropField": [of("DROP FIELD n ON u", "DEFINE", ON_U)],
    "DefineFunction": [of("DEFINE FUNCTION made() { fn::f() }", "DEFINE", ON_MAIN)],
    "DropFunction": [of("DROP FUNCTION f", "DEFINE", ON_MAIN)],
    "DefineAnalyzer": [of("DEFINE ANALYZER made TOKENIZERS class", "DEFINE", ON_MAIN)],
    "DropAnalyzer": [of("DROP ANALYZER a", "DEFINE", ON_MAIN)],
    "DefineIndex": [of("DEFINE INDEX j ON u FIELDS n", "DEFINE", ON_U)],
    "DropIndex": [of("DROP INDEX i ON u", "DEFINE", ON_U)],
    "CheckIndex": [of("CHECK INDEX i ON u", "DEFINE", ON_U)],
    "MeasureIndex": [
        of("MEASURE INDEX near ON u WITH array::map(0..10, |$n| [1, $n])", "DEFINE", ON_U),
        of(
            "MEASURE INDEX near ON u WITH array::map(0..10, |$n| [1, $n]) WHERE n = 1",
            "",
            ON_U,
            both=DEFINES_AND_READS,
        ),
    ],
    "RebuildIndex": [
        of("REBUILD INDEX i ON u", "DEFINE", ON_U),
        of("REBUILD INDEX near ON u MEASURE WHERE n = 1", "", ON_U, both=DEFINES_AND_READS),
    ],
    # --- cache spaces
    "DefineSpace": [of("DEFINE SPACE made", "DEFINE", ON_MAIN)],
    "DropSpace": [of("DROP SPACE c", "DEFINE", ON_MAIN)],
    "GetKey": [of("GET 'k' FROM c", "READ", ON_C)],
    "SetKey": [of("SET 'k' IN c VALUE 2", "WRITE", ON_C)],
    "SwapKey": [of("SWAP 'k' IN c EXPECT 1 VALUE 2", "", ON_C, both=WRITES_AND_READS)],
    "IncrKey": [of("INCR 'k' IN c", "WRITE", ON_C)],
    "DeleteKey": [of("DELETE 'k' FROM c", "WRITE", ON_C)],
    "ExpireKey": [of("EXPIRE 'k' IN c 1h", "WRITE", ON_C)],
    "PersistKey": [of("PERSIST 'k' IN c", "WRITE", ON_C)],
    "LockKey": [of("LOCK 'l' IN c HOLDER 'h' EXPIRE 1m", "WRITE", ON_C)],
    "UnlockKey": [of("UNLOCK 'l' IN c HOLDER 'h'", "WRITE", ON_C)],
    "ListKeys": [of("KEYS FROM c", "READ", ON_C)],
    "DropKeys": [of("DROP KEYS IN c PREFIX 'k'", "", ON_C, both=WRITES_AND_READS)],
    # --- vaults
    "DefineVault": [owns("DEFINE VAULT made", ON_MAIN, member=HIDDEN, owner=MAY)],
    "AlterVault": [owns("ALTER VAULT s SET VERSIONS 2", ON_MAIN, member=HIDDEN, owner=MAY)],
    "DropVault": [owns("DROP VAULT s", ON_MAIN, member=HIDDEN, owner=MAY)],
    "RotateVault": [sealed("ROTATE VAULT s", "UNSEAL")],
    "WriteSecret": [sealed("WRITE 'k' IN VAULT s VALUE 1", "WRITE")],
    "RevealSecret": [sealed("REVEAL 'k' FROM VAULT s", "READ")],
    "EraseSecret": [sealed("ERASE 'k' FROM VAULT s", "WRITE")],
    "ListSecrets": [sealed("LIST FROM VAULT s", "READ")],
    "InfoTrail": [
        sealed("INFO FOR AUDIT OF VAULT s", "INFO"),
        owns("INFO FOR AUDIT OF ALL VAULTS", "STORE"),
        sealed("INFO FOR AUDIT OF VAULT s CHECK", "INFO"),
        owns("INFO FOR AUDIT OF ALL VAULTS CHECK", "STORE"),
    ],
    # --- topics
    "DefineTopic": [of("DEFINE TOPIC made", "DEFINE", ON_MAIN)],
    "AlterTopic": [of("ALTER TOPIC q SET KEEP 1h", "DEFINE", ON_Q)],
    "DropTopic": [of("DROP TOPIC q", "DEFINE", ON_MAIN)],
    "TrimTopic": [of("TRIM TOPIC q BEFORE 1", "DEFINE", ON_Q)],
    "Publish": [of("PUBLISH INTO q VALUE 2", "WRITE", ON_Q)],
    "ReadTopic": [
        of("READ FROM q AFTER 0", "READ", ON_Q),
        of("READ FROM q AS r", "CONSUME", ON_Q),
    ],
    "DefineReader": [of("DEFINE READER s ON q", "CONSUME", ON_Q)],
    "CommitReader": [of("COMMIT READER r ON q AT 0", "CONSUME", ON_Q)],
    "AlterReader": [of("ALTER READER r ON q SET POSITION END", "CONSUME", ON_Q)],
    "DropReader": [of("DROP READER r ON q", "CONSUME", ON_Q)],
    "DefineGroup": [
        of("DEFINE GROUP h ON q DEADLINE 1m", "DEFINE", ON_Q),
        of(
            "DEFINE GROUP h ON q DEADLINE 1m DEAD LETTER dead",
            "",
            ON_Q,
            both=DEFINES_AND_READS,
            given=False,
        ),
    ],
    "AlterGroup": [
        of("ALTER GROUP g ON q SET IN FLIGHT 5", "DEFINE", ON_Q),
        of(
            "ALTER GROUP g ON q SET DEAD LETTER dead", "", ON_Q, both=DEFINES_AND_READS, given=False
        ),
    ],
    "DropGroup": [of("DROP GROUP g ON q", "DEFINE", ON_Q)],
    "Take": [of("TAKE FROM q AS g", "CONSUME", ON_Q)],
    "Ack": [of("ACK q AS g RECEIPTS []", "CONSUME", ON_Q)],
    "Nack": [of("NACK q AS g RECEIPTS []", "CONSUME", ON_Q)],
    "Extend": [of("EXTEND q AS g RECEIPTS [] BY 1m", "CONSUME", ON_Q)],
    "GiveUp": [of("GIVE UP q AS g RECEIPTS []", "CONSUME", ON_Q)],
    "Redrive": [of("REDRIVE FROM q TO dead", "CONSUME", ON_Q, given=False)],
    # --- users and the node
    "DefineUser": [
        owns("DEFINE USER made ROLE owner PASSWORD 'correct horse battery'", "STORE"),
        owns("DEFINE USER other ROLE owner PASSWORD 'correct horse battery'", "STORE"),
    ],
    "AlterUser": [
        nobody("ALTER USER other SET ROLE owner"),
        owns("ALTER USER $me SET ROLE owner", "USER $me", owner=MAY, other=MAY),
    ],
    "DropUser": [nobody("DROP USER other")],
    "Grant": [
        nobody("GRANT READ ON TABLE u TO other"),
        owns("GRANT READ, INFO ON DATABASE shop.main TO $me", "USER $me", owner=MAY, other=HIDDEN),
    ],
    "Revoke": [
        nobody("REVOKE READ ON TABLE u FROM other"),
        owns(
            "REVOKE INFO ON NODE FROM $me", "USER $me", owner="OWNER OF NODE", other="OWNER OF NODE"
        ),
    ],
    "DefineNode": [owns("DEFINE NODE ROLES serving, writable", "NODE")],
    "LeadStore": [owns("DEFINE NODE LEADS STORE", "NODE")],
    "Kill": [owns("KILL 'none'", "NODE")],
    # --- the cluster
    "DefineReplica": [owns("DEFINE REPLICA n2 PEER 'n2:1'", "STORE")],
    "AlterReplica": [
        owns("ALTER REPLICA n1 ROLES serving", "STORE"),
        owns("ALTER REPLICA gone ROLES serving", "STORE"),
        owns("ALTER REPLICA n1 LEADS u", "STORE"),
    ],
    "DropReplica": [owns("DROP REPLICA n1", "STORE")],
    "CreateJoinToken": [
        owns("CREATE JOIN TOKEN", "STORE"),
        owns("CREATE JOIN TOKEN FOR n1", "STORE"),
    ],
    "RevokeCertificate": [owns(f"REVOKE CERTIFICATE {'ab' * 32}", "STORE")],
    "DefineFailover": [
        owns("DEFINE FAILOVER VIA 'http://e' LEASE 5s ACKS 1 BEHIND 1s PROMOTE AUTO", "STORE")
    ],
    "DropFailover": [owns("DROP FAILOVER", "STORE")],
    "RestoreScript": [
        owns("RESTORE SCRIPT FROM 'x'", "STORE"),
        owns("RESTORE SCRIPT FROM 'x' CHECK", "STORE"),
    ],
    "Backup": [
        owns("BACKUP", "STORE"),
        owns("BACKUP OF shop.main", "STORE"),
        owns("BACKUP LOG", "STORE"),
        owns("BACKUP SCRIPT", "STORE"),
        owns("BACKUP SCRIPT OF shop.main TO 'x'", "STORE"),
        owns("BACKUP SCRIPT OF shop.main", ON_MAIN, member=HIDDEN, owner=MAY),
        owns(
            "BACKUP SCRIPT OF NAMESPACE shop", ON_SHOP, member=HIDDEN, owner=f"OWNER OF {ON_SHOP}"
        ),
    ],
    # --- INFO FOR
    "STORE": [Row("INFO FOR STORE", "INFO ON STORE", MAY, *("INFO ON STORE",) * 3)],
    "NAMESPACE": [
        of("INFO FOR NAMESPACE shop", "INFO", ON_SHOP),
        of("INFO FOR NAMESPACE", "INFO", ON_SHOP),
    ],
    "DATABASE": [
        of("INFO FOR DATABASE", "INFO", ON_MAIN),
        of("INFO FOR DATABASE main", "INFO", ON_MAIN),
        of("INFO FOR DATABASE shop.main", "INFO", ON_MAIN),
    ],
    "TABLE": [of("INFO FOR TABLE u", "INFO", ON_U)],
    "VAULT": [sealed("INFO FOR VAULT s", "INFO")],
    "INDEX": [of("INFO FOR INDEX i ON u", "INFO", ON_U)],
    "SPACE": [of("INFO FOR SPACE c", "INFO", ON_C)],
    "TOPIC": [of("INFO FOR TOPIC q", "INFO", ON_Q)],
    "GROUP": [of("INFO FOR GROUP g ON q", "INFO", ON_Q)],
    "FUNCTION": [of("INFO FOR FUNCTION f", "INFO", ON_MAIN)],
    "ANALYZER": [of("INFO FOR ANALYZER a", "INFO", ON_MAIN)],
    "USERS": [owns("INFO FOR USERS", "STORE", owner=MAY, other=MAY)],
    "USER": [nobody("INFO FOR USER other"), anybody("INFO FOR USER $me")],
    "GRANTS": [
        nobody("INFO FOR GRANTS OF other"),
        anybody("INFO FOR GRANTS OF $me"),
        anybody("INFO FOR GRANTS"),
    ],
    "InfoEntries": [
        anybody("INFO FOR STATEMENTS"),
        anybody("INFO FOR STATEMENTS OF $me"),
        Row("INFO FOR STATEMENTS OF other", HIDDEN, HIDDEN, HIDDEN, MAY, MAY),
        owns("INFO FOR AUDIT", "STORE", owner=MAY, other=MAY),
    ],
    "InfoHistory": [
        of("INFO FOR HISTORY OF u:1", "READ", ON_U),
        of("INFO FOR HISTORY OF (u:1) BEFORE 9 LIMIT 1", "READ", ON_U),
    ],
    "NODE": [Row("INFO FOR NODE", "INFO ON NODE", MAY, *("INFO ON NODE",) * 3)],
    "CLUSTER": [Row("INFO FOR CLUSTER", "INFO ON NODE", MAY, *("INFO ON NODE",) * 3)],
    "STATE": [Row("INFO FOR STATE", "INFO ON NODE", MAY, *("INFO ON NODE",) * 3)],
    "RUNNING": [owns("INFO FOR RUNNING", "NODE")],
    "BACKUPS": [owns("INFO FOR BACKUPS", "STORE")],
}
"""By the class of the statement's node; of INFO by its subject."""

ALONE: Final = frozenset(
    {
        *("DefineNode", "LeadStore", "Kill", "Backup", "RestoreScript", "Begin", "Commit"),
        *("Cancel", "Use", "RevealSecret", "ListSecrets", "CreateJoinToken"),
        *("DefineFailover", "DropFailover"),
    }
)
"""What is no part of a transaction, or changes nothing."""


def without_a_row(rows: dict[str, list[Row]]) -> set[str]:
    """Handlers and subjects that no row is about, and rows that are about none."""
    known = {kind.__name__ for kind in HANDLERS} | set(SUBJECTS)
    return known ^ rows.keys()


def test_every_handler_has_a_row() -> None:
    assert without_a_row(ROWS) == set()


def test_a_handler_must_declare_and_take_what_it_needs() -> None:
    run: Any = lambda run, statement: None  # noqa: E731
    with pytest.raises(TypeError):
        handles(tree.Let, "none")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        informs("PLANTED")  # type: ignore[call-arg]
    declared = HANDLERS[tree.Publish].needs
    with pytest.raises(AssertionError, match="takes 0 objects, its needs name 1"):
        handles(type("Planted", (), {}), "none", writes=True, needs=declared)(run)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_about_its_statement(name: str) -> None:
    for row in ROWS[name]:
        kinds = [_name(statement) for statement in parse(row.text.replace("$me", "me")).statements]
        assert name in kinds, row.text


def _name(statement: Any) -> str:
    return str(statement.subject) if type(statement) is tree.Info else type(statement).__name__


async def differing(node: Running) -> tuple[list[str], int]:
    """The cells that are not what is written down, and how many were asked."""
    await node.values(SETTING)
    await node.unseal()
    await node.values("WRITE 'k' IN VAULT s VALUE 1")
    callers = {role: await declare(node.node, role, role) for role in ROLES}
    callers["owner"] = await declare(node.node, "owner", "owner", "shop.main")
    callers["other"] = await declare(node.node, "tess", "owner", "bank")
    held = await _granted(node)
    found, count = [], 0
    for name, rows in ROWS.items():
        for row in rows:
            expected = {who: (caller, getattr(row, who)) for who, caller in callers.items()}
            expected["root"] = (OWNER, MAY)
            if row.needs:
                given, but = held[row.needs]
                expected |= {"given": (given, MAY), "but": (but, row.needs)}
            for who, (caller, cell) in expected.items():
                me = "other" if who == "root" else caller.user
                text = row.text.replace("$me", me)
                script = text if name in ALONE else f"BEGIN; {text}; CANCEL"
                refusal = (await node.answer(script, caller=caller)).refusal
                told = _told(name, refusal)
                if who == "root" and told == HIDDEN:
                    told = MAY  # there is no such thing, also for who may everything
                count += 1
                if told != cell.replace("$me", me):
                    found.append(f"{who}: {text}: {refusal!r}, not {cell}")
    return found, count


async def _granted(node: Running) -> dict[str, tuple[Caller, Caller]]:
    """For each thing that is needed a member who holds that and no more, and one who holds every
    other verb on the same thing."""
    needs = sorted({row.needs for rows in ROWS.values() for row in rows} - {""})
    found = {}
    for number, need in enumerate(needs):
        words, _, securable = need.partition(" ON ")
        others = {verb.value for verb in VERBS[SecurableKind[securable.split()[0]]] - OWN} - {
            *words.split(", ")
        }
        pair = []
        for kind, held in (("given", words), ("but", ", ".join(sorted(others)))):
            pair.append(await declare(node.node, f"{kind}{number}", "member"))
            await node.values(f"GRANT {held} ON {securable} TO {kind}{number}")
        found[need] = (pair[0], pair[1])
    return found


async def test_what_each_is_answered(node: Running, figure: Callable[[str, object], None]) -> None:
    found, count = await differing(node)
    assert not found, "\n".join(found)
    figure("S7 authorisation matrix: statements", f"{count} cells")


@pytest.mark.parametrize(
    "planted",
    [
        lambda self, securable: (ALL, True, ()),
        lambda self, securable: (NOTHING, False, ()),
        lambda self, securable: (READ & VERBS[securable.kind], True, ()),
    ],
)
async def test_a_gate_that_judges_otherwise_is_found(
    node: Running, monkeypatch: pytest.MonkeyPatch, planted: Any
) -> None:
    monkeypatch.setattr(Privileges, "_judge", planted)
    found, _ = await differing(node)
    assert found


def _told(name: str, refusal: Refusal | None) -> str:
    if isinstance(refusal, NotAllowed):
        return str(refusal.detail["needs"])
    if isinstance(refusal, Unknown) and refusal.detail.get("kind") in ("namespace", "user"):
        return HIDDEN
    if (
        refusal is not None
        and refusal.code
        not in (
            "Thrown",
            "AlreadyExists",
            "NoBackupFolder",
            "NotImplementedHere",
        )
        and not (name == "DefineFailover" and isinstance(refusal, BadRequest))
    ):
        return refusal.code
    return MAY


# --- operations on keys --------------------------------------------------------------------------

OPERATIONS: Final[dict[type, tuple[KeyOperation, str, str]]] = {
    spaces.GetKey: (spaces.GetKey("k"), MAY, MAY),
    spaces.SetKey: (spaces.SetKey("k", 1), MAY, f"WRITE ON {ON_C}"),
    spaces.SwapKey: (spaces.SwapKey("k", 1, 2), MAY, f"WRITE ON {ON_C}"),
    spaces.IncrKey: (spaces.IncrKey("n"), MAY, f"WRITE ON {ON_C}"),
    spaces.DeleteKey: (spaces.DeleteKey("k"), MAY, f"WRITE ON {ON_C}"),
    spaces.ExpireKey: (spaces.ExpireKey("k", 1), MAY, f"WRITE ON {ON_C}"),
    spaces.PersistKey: (spaces.PersistKey("k"), MAY, f"WRITE ON {ON_C}"),
    spaces.LockKey: (spaces.LockKey("l", "h", 1), MAY, f"WRITE ON {ON_C}"),
    spaces.UnlockKey: (spaces.UnlockKey("l", "h"), MAY, f"WRITE ON {ON_C}"),
    spaces.ListKeys: (spaces.ListKeys(), MAY, MAY),
}
"""Operations, and what an editor and a viewer are answered. A member finds no space."""


def test_every_operation_has_a_row() -> None:
    assert set(get_args(KeyOperation)) == OPERATIONS.keys()


async def test_what_each_role_is_answered_to_an_operation(node: Running) -> None:
    await node.values(SETTING)
    roles = [await declare(node.node, role, role) for role in ("editor", "viewer")]
    member = await declare(node.node, "member", "member")
    for asked, *expected in OPERATIONS.values():
        for caller, needs in zip(roles, expected, strict=True):
            (answer,) = await ask_keys(node.node, caller, ("shop", "main", "c"), asked)
            told = answer.detail["needs"] if isinstance(answer, Refusal) else MAY
            assert told == needs, (caller.user, asked)
        refusals = []
        for name in ("c", "nothing"):
            with pytest.raises(NotASpace) as refused:
                await ask_keys(node.node, member, ("shop", "main", name), asked)
            refusals.append(refused.value.message.replace("nothing", "c"))
        assert refusals[0] == refusals[1]
        (answer,) = await ask_keys(node.node, OWNER, ("shop", "main", "c"), asked)
        assert not isinstance(answer, Refusal)

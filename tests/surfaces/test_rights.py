"""Who asks over the sockets for what it may not: every roundabout way to a record, a key, a message
or a declaration. Nothing of it may ever be in an answer. Every route is in `test_matrix.py`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from actors.rights import Privileges
from actors.scripts import schema
from actors.scripts.authorizer import database_in
from actors.scripts.execution import Execution
from protocol.binary import unpack_object
from protocol.errors import CATALOGUE
from protocol.frames import MessageKind as FrameKind
from protocol.rights import ALL, READ, Verb, Verbs
from protocol.values import RecordId
from storage.catalog import places, tables
from storage.catalog.tables import Table
from storage.records import records
from tests.callers import PASSWORD, Granted, declare
from tests.surfaces.http.raw import Answer, Raw
from tests.surfaces.served import Served, served
from tests.surfaces.wire.peers import Peer
from tests.tables import case


def lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


CANARY: Final = "canary7b1f"
"""Stands in every value, key, message and comment that is not for everybody."""

SETTING: Final = f"""
DEFINE TABLE secret COMMENT '{CANARY}';
CREATE secret:1 SET word = '{CANARY}', words = ['{CANARY}'], next = secret:2, n = 7;
CREATE secret:2 SET word = '{CANARY}2', n = 8;
DEFINE INDEX words ON secret FIELDS word UNIQUE COMMENT '{CANARY}';
DEFINE FIELD word ON secret TYPE any DEFAULT '{CANARY}' COMMENT '{CANARY}';
DEFINE TABLE open; CREATE open:1 SET link = secret:1, links = [secret:1, secret:2], n = 1;
DEFINE TABLE box; CREATE box:1 SET n = 7, word = '{CANARY}', link = secret:1;
DEFINE INDEX one ON box FIELDS word UNIQUE;
DEFINE TOPIC news COMMENT '{CANARY}'; PUBLISH INTO news VALUE '{CANARY}';
DEFINE GROUP g ON news DEADLINE 1m; DEFINE READER r ON news;
DEFINE TOPIC mine;
DEFINE SPACE cache COMMENT '{CANARY}'; SET '{CANARY}' IN cache VALUE '{CANARY}';
SET 'k' IN cache VALUE '{CANARY}'
"""


class House:
    def __init__(self, node: Served, raw: Raw) -> None:
        self.here, self.raw = node.here, raw
        self._node = node
        self.tokens: dict[str, str] = {}
        self.peers: dict[str, Peer] = {}

    async def admit(self, name: str, role: str, space: str | None = None) -> None:
        await declare(self.here.node, name, role, space, PASSWORD)
        self.tokens[name] = f"Bearer {await self._node.token(self.raw, name, PASSWORD)}"
        self.peers[name] = await self._node.peer(user=name, password=PASSWORD)

    async def http(
        self, name: str | None, text: str, parameters: Any = None, place: str = "shop.main"
    ) -> Answer:
        schema = {} if name is None else {"authorization": self.tokens[name]}
        namespace, _, database = place.partition(".")
        body = {"script": text, "params": parameters or {}, "ns": namespace, "db": database}
        return await self.raw.ask(
            "POST", "/script", json.dumps(body).encode(), content_type="application/json", **schema
        )

    async def wire(self, name: str, text: str, parameters: Any = None) -> str:
        """What a script over the wire is answered, as text."""
        message = await self.peers[name].run(7, text, params=parameters or {}, ns="shop", db="main")
        assert message.kind in (FrameKind.ANSWER, FrameKind.ERROR)
        return repr(message.body)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with served(tmp_path / "store") as node:
        await node.here.values(SETTING)
        yield House(node, await node.raw())


# --- a member without grants ----------------------------------------------------------------------

ROUNDABOUT: Final = lines(
    """
    SELECT * FROM secret
    SELECT * FROM secret:1
    SELECT * FROM [secret:1, secret:2]
    SELECT * FROM $id
    SELECT * FROM $ids
    SELECT * FROM secret:1..9
    SELECT VALUE word FROM secret:1
    SELECT count() FROM secret GROUP ALL
    SELECT * FROM secret WHERE word = $word
    SELECT * FROM secret WHERE n = 7
    SELECT word FROM secret ORDER BY word LIMIT 1
    SELECT * FROM (SELECT * FROM secret)
    SELECT (SELECT * FROM secret) FROM [{ a: 1 }]
    SELECT a.word FROM [{ a: secret:1 }]
    SELECT VALUE a.next.word FROM [{ a: secret:1 }]
    SELECT * FROM [{ a: secret:1 }] FETCH a
    SELECT * FROM [{ a: [secret:1] }] FETCH a
    SELECT * FROM [{ a: secret:1 }] WHERE a.word != 'x'
    SELECT * FROM [{ a: secret:1 }] ORDER BY a.word
    SELECT count() FROM [{ a: secret:1 }] GROUP BY a.word
    SELECT * FROM [{ a: secret:1 }] LIMIT secret:1.n
    SELECT * FROM [$id]
    SELECT * FROM [{ a: 1 }] WHERE (SELECT VALUE n FROM secret) CONTAINS 7
    RETURN secret:1.word
    RETURN secret:1.*
    RETURN secret:1['word']
    RETURN $id.word
    RETURN secret:1.next.word
    RETURN [secret:1, secret:2].word
    RETURN $ids.word
    RETURN { a: secret:1.word }
    RETURN array::len(secret:1.words)
    RETURN secret:1[*]
    RETURN string::len(secret:1.word) > 3
    RETURN [10, 20][secret:1.n - 7]
    RETURN (SELECT VALUE word FROM secret)[0]
    RETURN type::record('secret', 1).word
    RETURN secret:1.word ~ '^canary'
    RETURN secret:1.word ?? 'none'
    LET $x = secret:1.word; RETURN $x
    LET $x = (SELECT * FROM secret:1); RETURN $x
    LET $x = SELECT * FROM secret; RETURN $x
    LET $x = secret:1; RETURN $x.word
    IF secret:1.n = 7 { RETURN 'yes' } ELSE { RETURN 'no' }
    IF true { SELECT * FROM secret }
    RETURN IF secret:1.n = 7 { 'yes' } ELSE { 'no' }
    FOR $x IN secret:1.words { THROW $x }
    FOR $x IN [secret:1] { THROW $x.word }
    THROW secret:1.word
    THROW (SELECT * FROM secret)
    secret:1.word
    BEGIN; SELECT * FROM secret; COMMIT
    BEGIN; RETURN secret:1.word; CANCEL
    USE shop.main; SELECT * FROM secret:1
    USE NAMESPACE shop
    USE shop.main
    EXPLAIN SELECT * FROM secret
    EXPLAIN ANALYZE SELECT * FROM secret WHERE word = $word
    EXPLAIN ANALYZE SELECT * FROM secret:1
    EXPLAIN ANALYZE SELECT * FROM $ids
    EXPLAIN ANALYZE DELETE secret WHERE n = 7
    EXPLAIN UPDATE secret SET n = 1 WHERE word = 'x'
    EXPLAIN SELECT * FROM secret:1
    CREATE secret:1
    CREATE open
    CREATE open SET n = 2
    CREATE open:7 SET n = $word
    CREATE secret CONTENT { word: $word }
    CREATE secret
    CREATE $id
    INSERT INTO secret [{ word: $word }]
    INSERT INTO secret { id: 1 } IGNORE
    INSERT INTO secret { id: 1 } ON DUPLICATE UPDATE SET n = 1
    UPSERT secret:1 SET n = n
    UPSERT secret:9 CONTENT { word: $word }
    UPDATE secret SET n = 1 RETURN BEFORE
    UPDATE secret:1 MERGE {}
    UPDATE $id SET n = 1
    UPDATE secret SET n = 1 WHERE n = 7
    DELETE secret:1 RETURN BEFORE
    DELETE secret
    DELETE (SELECT VALUE id FROM secret) RETURN BEFORE
    READ FROM news AFTER 0
    READ FROM news AS r
    TAKE FROM news AS g
    TRIM TOPIC news BEFORE 9
    PUBLISH INTO news VALUE 1 EXPECT 1
    PUBLISH INTO mine VALUE secret:1.word
    REDRIVE FROM news TO mine
    DEFINE READER s ON news
    COMMIT READER r ON news AT 1
    GET 'k' FROM cache
    KEYS FROM cache
    SWAP 'k' IN cache EXPECT 1 VALUE 2
    INCR 'k' IN cache
    SET 'k' IN cache VALUE 1 IF ABSENT
    LOCK 'k' IN cache HOLDER 'h' EXPIRE 1m
    SET 'k' IN cache VALUE secret:1.word
    DROP KEYS IN cache PREFIX ''
    INFO FOR NAMESPACE shop
    INFO FOR DATABASE shop.main
    INFO FOR DATABASE
    INFO FOR TABLE secret
    INFO FOR INDEX words ON secret
    INFO FOR TOPIC news
    INFO FOR GROUP g ON news
    INFO FOR SPACE cache
    DEFINE TABLE secret
    DEFINE DATABASE shop.main
    DROP TABLE secret
    DROP DATABASE shop.main
    DROP NAMESPACE shop
    ALTER TABLE secret SET SCHEMAFULL
    DEFINE FIELD word ON secret TYPE int
    DEFINE INDEX i ON secret FIELDS n UNIQUE
    REBUILD INDEX words ON secret
    DROP INDEX words ON secret
    DEFINE FIELD copy ON open TYPE any DEFAULT (SELECT * FROM secret)
    """
)
PARAMETERS: Final = {
    "id": {"$rec": "secret:1"},
    "ids": [{"$rec": "secret:1"}, {"$rec": "secret:2"}],
    "word": "x",
}
ON_THE_WIRE: Final = {
    "id": RecordId("secret", 1),
    "ids": [RecordId("secret", 1), RecordId("secret", 2)],
    "word": "x",
}


async def refused(house: House, text: str) -> None:
    """A script is refused on both surfaces, word for word as if nothing were there: as in a place
    that is none. Twice each: what has come before is run in another way."""
    for _ in range(2):
        answer = await house.http("eve", text, PARAMETERS)
        assert answer.status == 404 and answer.error["code"] == "Unknown", (text, answer.body)
        assert CANARY.encode() not in answer.body, text
        absent = await house.http("eve", text.replace("shop", "ghost"), PARAMETERS, "ghost.main")
        assert _anonymous(answer) == _anonymous(absent), text
        on_wire = await house.wire("eve", text, ON_THE_WIRE)
        assert "'Unknown'" in on_wire and CANARY not in on_wire, (text, on_wire)


async def test_a_member_is_refused_on_every_way(
    house: House, figure: Callable[[str, object], None]
) -> None:
    await house.admit("eve", "member")
    before = await house.here.value("SELECT * FROM secret, open, box")
    for text in ROUNDABOUT:
        await refused(house, text)
    figure("roundabout ways refused to a member", f"{len(ROUNDABOUT)}, each twice on each surface")
    assert await house.here.value("SELECT * FROM secret, open, box") == before


def _anonymous(answer: Answer) -> Any:
    """A refusal without what differs by the request and the names of places."""
    body = json.loads(answer.body.replace(b"ghost", b"shop"))
    for result in body["results"]:
        result.pop("took")
    body["error"].pop("request")
    body["error"].pop("column", None)  # a longer name stands before it
    return body


WHOLE_NODE: Final = (
    "INFO FOR STORE", "INFO FOR NODE", "INFO FOR USERS", "INFO FOR RUNNING", "KILL 'x'",
    "BACKUP", "BACKUP OF shop.main", "BACKUP LOG", "BACKUP SCRIPT",
    "BACKUP SCRIPT OF shop.main TO 'x'",
    "INFO FOR BACKUPS", "RESTORE SCRIPT FROM 'x'", "RESTORE SCRIPT FROM 'x' CHECK",
    "DEFINE NODE ROLES NONE", "DEFINE NODE LEADS STORE", "DEFINE NAMESPACE mine",
    "DEFINE FAILOVER VIA 'http://e' LEASE 5s ACKS 0 BEHIND 1s PROMOTE AUTO", "DROP FAILOVER",
    "INFO FOR CLUSTER", "DEFINE REPLICA n PEER 'n:1'", "DROP REPLICA n", "CREATE JOIN TOKEN",
    f"REVOKE CERTIFICATE {'ab' * 32}",
    "DEFINE USER mallory ROLE owner PASSWORD 'correct horse battery'",
    "ALTER USER eve SET ROLE owner", "ALTER USER eve SET PASSWORD 'another horse battery'",
    "DROP USER eve",
)  # fmt: skip


async def test_a_member_does_nothing_to_the_node(house: House) -> None:
    await house.admit("eve", "member")
    for text in WHOLE_NODE:
        with case(text):
            answer = await house.http("eve", text)
            assert answer.status == 403 and answer.error["detail"]["needs"], answer.body
            assert "'NotAllowed'" in await house.wire("eve", text)


KEYS: Final = (
    {"op": "get", "key": "k"}, {"op": "keys"}, {"op": "incr", "key": "k"},
    {"op": "set", "key": "k", "value": 1, "if": "absent"}, {"op": "delete", "key": "k"},
    {"op": "swap", "key": "k", "expect": 1, "value": 2}, {"op": "persist", "key": "k"},
)  # fmt: skip


async def test_a_member_finds_no_space_on_the_wire(house: House) -> None:
    await house.admit("eve", "member")
    peer = house.peers["eve"]
    for operation in KEYS:
        told = []
        for name in ("cache", "nothing"):
            peer.say(FrameKind.KV, 9, {**operation, "ns": "shop", "db": "main", "space": name})
            message = await peer.hear()
            assert message is not None and message.kind is FrameKind.ERROR
            told.append(repr(message.body).replace("nothing", "cache"))
        assert told[0] == told[1] and "NotASpace" in told[0] and CANARY not in told[0]


async def test_metrics_name_nothing_to_a_member(house: House) -> None:
    await house.admit("eve", "member")
    answer = await house.raw.ask("GET", "/metrics", authorization=house.tokens["eve"])
    assert answer.status == 200
    assert b"shop" not in answer.body and b"news" not in answer.body


# --- a member with some grants --------------------------------------------------------------------

BESIDE_ITS_GRANTS: Final = lines(
    """
    SELECT link.word FROM open
    SELECT * FROM open FETCH link
    SELECT * FROM open:1 FETCH links
    SELECT * FROM open WHERE link.n = 7
    SELECT * FROM open ORDER BY link.word
    SELECT count() FROM open GROUP BY link.word
    SELECT links.word FROM open
    RETURN open:1.link.word
    SELECT (SELECT * FROM $parent.link) AS x FROM open
    SELECT * FROM open:1.link
    SELECT * FROM (SELECT VALUE link FROM open)
    SELECT links[*].word FROM open
    RETURN (SELECT VALUE link FROM open)[0].word
    EXPLAIN ANALYZE SELECT * FROM open WHERE link.n = 7
    CREATE box SET x = secret:1.word
    CREATE box CONTENT secret:1.*
    UPDATE box SET x = secret:1.word
    INSERT INTO box (SELECT * FROM secret)
    UPSERT box:5 CONTENT { a: (SELECT * FROM secret) }
    DELETE open:1.link
    UPDATE (SELECT VALUE link FROM open) SET n = 1
    DELETE (SELECT VALUE link FROM open)
    """
)


async def test_what_a_member_may_read_leads_no_further(house: House) -> None:
    await house.admit("eve", "member")
    granted = Granted(house.here.node)
    granted.grant("eve", Verb.READ, "shop", "main", "open")
    granted.grant("eve", Verb.WRITE, "shop", "main", "box")
    assert CANARY.encode() not in (await house.http("eve", "SELECT * FROM open")).body
    before = await house.here.value("SELECT * FROM box, secret, open")
    for text in BESIDE_ITS_GRANTS:
        for _ in range(2):
            answer = await house.http("eve", text)
            assert answer.error["code"] == "Unknown", (text, answer.body)
            assert answer.error["message"] == "there is no table shop.main.secret", text
            assert CANARY.encode() not in answer.body
            assert CANARY not in await house.wire("eve", text)
    assert await house.here.value("SELECT * FROM box, secret, open") == before


BLIND: Final = lines(
    """
    SELECT * FROM box
    SELECT * FROM box:1
    RETURN box:1.word
    EXPLAIN SELECT * FROM box
    CREATE box:9 RETURN AFTER
    CREATE box:9 RETURN n
    UPDATE box SET n = 1 RETURN BEFORE
    UPDATE box SET n = 1 RETURN DIFF
    UPDATE box:1 MERGE { m: 1 } RETURN AFTER
    UPDATE box SET n = n + 1
    UPDATE box SET m = $this
    UPDATE box SET m = (SELECT VALUE $parent.word FROM [1])
    UPDATE box MERGE { m: word }
    UPDATE box:1 CONTENT { m: word }
    UPDATE box SET n = 1 WHERE word = 'x'
    UPDATE box SET n = 1 WHERE true
    DELETE box WHERE word = 'x'
    DELETE box:1 RETURN BEFORE
    UPSERT box:1 SET n = n
    UPSERT box:1 CONTENT {} RETURN BEFORE
    INSERT INTO box { id: 1 } IGNORE
    INSERT INTO box { id: 9 } RETURN AFTER
    INSERT INTO box { id: 1 } ON DUPLICATE UPDATE SET n = 2
    INFO FOR TABLE box
    DEFINE INDEX i ON box FIELDS n
    EXPLAIN ANALYZE UPDATE box SET n = 1
    """
)


async def test_write_alone_reads_nothing(house: House) -> None:
    await house.admit("eve", "member")
    Granted(house.here.node).grant("eve", Verb.WRITE, "shop", "main", "box")
    for text in BLIND:
        for _ in range(2):
            answer = await house.http("eve", text)
            assert answer.status == 403, (text, answer.body)
            assert answer.error["detail"]["needs"].endswith("ON TABLE shop.main.box"), text
            assert "'NotAllowed'" in await house.wire("eve", text)


ANSWERED_WITH_NOTHING: Final = lines(
    """
    CREATE box:20 SET n = 1
    CREATE box CONTENT { n: 1 }
    INSERT INTO box [{ n: 1 }, { n: 2 }]
    UPSERT box:1 MERGE { m: 1 }
    UPSERT box:21 CONTENT { m: 1 }
    UPDATE box:1 SET m = 2
    UPDATE box SET m = 3
    UPDATE box:1 MERGE { m: 4 }
    UPDATE box UNSET m
    DELETE box:20
    CREATE box:22 RETURN NONE
    UPDATE box SET m.deep = 5
    UPDATE box:1 CONTENT { m: 6 }
    """
)


async def test_write_alone_writes(house: House) -> None:
    await house.admit("eve", "member")
    Granted(house.here.node).grant("eve", Verb.WRITE, "shop", "main", "box")
    for text in ANSWERED_WITH_NOTHING:
        answer = await house.http("eve", text)
        assert answer.status == 200, (text, answer.body)
        result = answer.json["results"][-1]
        assert result["value"] == [], text
        # How many records were there already is not told.
        made = 2 if text.startswith("INSERT") else 1
        told = None if text.startswith(("UPDATE", "DELETE")) else made
        assert result.get("changed") == told, text
    for text in ("UPDATE box:404 SET m = 1", "DELETE box:404", "DELETE box:8..9"):
        answer = await house.http("eve", text)
        assert "changed" not in answer.json["results"][-1], text
    kept = await house.here.value("SELECT * FROM box:1")
    assert kept == [{"id": RecordId("box", 1), "m": 6}]
    # A guess that is right is a commit as well.
    await house.here.values("UPDATE box SET m = 6")
    for text in ("UPDATE box:1 SET m = 6", "UPDATE box SET m = 6", "UPSERT box:1 SET m = 6"):
        before = (await house.here.answer("RETURN 1")).sequence
        assert (await house.http("eve", text)).json["seq"] == before + 1, text


TELLS_WHERE: Final = {
    f"CREATE box:9 SET word = '{CANARY}'": ("Duplicate", {"index": "one", "table": "box"}),
    f"INSERT INTO box {{ word: '{CANARY}' }}": ("Duplicate", {"index": "one", "table": "box"}),
    f"UPSERT box:9 CONTENT {{ word: '{CANARY}' }}": ("Duplicate", {"index": "one", "table": "box"}),
    "UPDATE box:1 SET held = 2": ("FieldRefused", {"field": "held", "table": "box"}),
    "UPDATE box:1 SET m = 2": ("AssertFailed", {"field": "sum", "table": "box"}),
    "UPDATE box:1 SET word.deep = 1": ("TypeRefused", {}),
    "UPDATE box:1 SET list[9] = 1": ("BadRequest", {}),
}  # fmt: skip


@pytest.mark.parametrize("text", TELLS_WHERE)
async def test_a_refusal_to_write_alone_tells_where_and_no_more(house: House, text: str) -> None:
    await house.admit("eve", "member")
    await house.here.values(
        f"UPDATE box:1 SET held = '{CANARY}', sum = '{CANARY}', list = [1, 2];"
        " DEFINE FIELD held ON box TYPE any READONLY"
    )
    if "SET m" in text:
        await house.here.values("DEFINE FIELD OVERWRITE sum ON box TYPE any ASSERT $value = m")
    granted = Granted(house.here.node)
    granted.grant("eve", Verb.WRITE, "shop", "main", "box")
    code, detail = TELLS_WHERE[text]
    answer = await house.http("eve", text)
    assert (answer.error["code"], answer.error["detail"]) == (code, detail)
    told = answer.error["message"]
    assert CANARY not in told.replace(text, "") and "box:1" not in told and "2" not in told
    granted.grant("eve", Verb.READ, "shop", "main", "box")
    assert len((await house.http("eve", text)).error["message"]) > 0


OF_WHAT_IS_STORED: Final = {
    "AlreadyExists": "CREATE box:1 SET n = 1",
    "BadRequest": "UPDATE box:1 SET list[9] = 1",
    "Duplicate": f"CREATE box:9 SET word = '{CANARY}'",
    "FieldRefused": "UPDATE box:1 SET held = 2",
    "NotANumber": "INCR 'k' IN cache",
    "NumberTooLarge": "INCR 'most' IN cache",
    "TooLarge": f"UPDATE box:1 SET m = [{', '.join(['$x'] * 9)}]",
    "TypeRefused": "UPDATE box:1 SET word.deep = 1",
    "AssertFailed": "UPDATE box:1 SET m = 2",
}
"""Refusals that depend on what is stored, and how one hears each with WRITE alone."""

OF_THE_REQUEST: Final = frozenset(
    word
    for line in lines(
        """
        AnswerTooLarge AuditRefused BackupCorrupt BackupCut BackupExists BackupNameRefused Busy
        Cancelled Conflict DiskFull Diverged DivisionByZero Draining ExpireRefused Failed
        ForeignOrigin Full GrantOutsideSpace HeadTooLarge LastOwner LogPruned
        MisdirectedRequest NameRefused NoBackupFolder NoHistory NoKey NoSuchRoute NotASpace
        NotAllowed NotEnoughReplicas NotHeldHere NotImplementedHere NotInTransaction
        NotWritable RequestTimeout RestoreRefused RestoreTargetExists Sealed SessionEnded
        SignInRefused StatementTimeout StillHeld Stranded Thrown TooManyTries TooSlow
        UnexpectedToken Unknown UnknownOutcome UpgradeRequired VersionNotSupported WrongKey
        WrongMethod
        """
    )
    for word in line.split()
)
"""Those that depend on the request, the node, or on what its reader is shown already."""


def test_every_refusal_is_judged_by_what_it_could_tell() -> None:
    assert OF_WHAT_IS_STORED.keys() | OF_THE_REQUEST == CATALOGUE.keys()
    assert not OF_WHAT_IS_STORED.keys() & OF_THE_REQUEST


async def test_no_refusal_tells_who_only_writes_what_is_stored(house: House) -> None:
    assert await told_to_a_writer(house) == []


async def told_to_a_writer(house: House) -> list[str]:
    """What is stored and stands in a refusal."""
    found = []
    await house.admit("eve", "member")
    await house.here.values(
        f"UPDATE box:1 SET held = '{CANARY}', sum = '{CANARY}', list = [1, 2];"
        " DEFINE FIELD held ON box TYPE any READONLY;"
        f" SET 'most' IN cache VALUE {2**63 - 1}"
    )
    granted = Granted(house.here.node)
    for kind, name in (("table", "box"), ("space", "cache"), ("topic", "news")):
        granted.grant("eve", Verb.WRITE, "shop", "main", name, kind=kind)
    for code, text in OF_WHAT_IS_STORED.items():
        if code == "AssertFailed":
            await house.here.values("DEFINE FIELD OVERWRITE sum ON box TYPE any ASSERT $value = m")
        for script in (text, f"BEGIN; {text}; COMMIT"):
            bound = {"x": "x" * 1_000_000} if "$x" in text else {}
            answer = await house.http("eve", script, bound)
            assert answer.error["code"] == code, answer.body
            told = json.dumps([answer.error["message"], answer.error["detail"]])
            told = told.replace(text, "")
            if CANARY in told or str(2**63 - 1) in told or "string" in told:
                found.append(told)
    return found


async def test_who_only_writes_learns_no_size(house: House) -> None:
    """A record that grew too large, or what is published of its change, says how large it was."""
    await house.admit("eve", "member")
    await house.here.values(
        "DEFINE TOPIC small LARGEST 200; DEFINE TABLE loud ON CHANGE PUBLISH INTO small;"
        f" CREATE loud:1 SET a = '{'s' * 60}'"
    )
    granted = Granted(house.here.node)
    for kind, name in (("table", "box"), ("table", "loud"), ("topic", "small")):
        granted.grant("eve", Verb.WRITE, "shop", "main", name, kind=kind)
    large = f"SET m = [{', '.join(['$x'] * 9)}] RETURN NONE"
    told = [
        (await house.http("eve", f"UPSERT {record} {large}", {"x": "x" * 1_000_000})).error
        for record in ("box:1", "box:7")
    ]
    assert [one["code"] for one in told] == ["TooLarge", "TooLarge"]
    assert told[0]["message"] == told[1]["message"]
    longer = f"UPDATE loud:1 SET b = '{'y' * 100}'"
    published = (await house.http("eve", longer)).error
    assert published["code"] == "TooLarge"
    for one in (*told, published):
        assert "size" not in one["detail"], one
    granted.grant("eve", Verb.READ, "shop", "main", "loud")
    assert "size" in (await house.http("eve", longer)).error["detail"]


async def test_a_failed_index_shows_no_value_to_who_may_not_read(house: House) -> None:
    here = house.here
    await house.admit("eve", "member")
    rows = [{"id": n, "w": CANARY if n in (7, 12_000) else n} for n in range(12_001)]
    await here.values("DEFINE TABLE big; INSERT INTO big $rows RETURN NONE", {"rows": rows})
    await here.values("DEFINE INDEX w ON big FIELDS w UNIQUE")
    while (await here.value("INFO FOR INDEX w ON big"))["state"] == "building":
        pass
    granted = Granted(here.node)
    granted.grant("eve", Verb.INFO, "shop", "main", "big")
    answer = await house.http("eve", "INFO FOR INDEX w ON big")
    assert answer.status == 200 and CANARY.encode() not in answer.body
    assert "problem" in answer.json["results"][0]["value"]
    granted.grant("eve", Verb.READ, "shop", "main", "big")
    assert CANARY.encode() in (await house.http("eve", "INFO FOR INDEX w ON big")).body


async def test_define_alone_is_told_no_value(house: House) -> None:
    await house.admit("eve", "member")
    Granted(house.here.node).grant("eve", Verb.DEFINE, "shop", "main", "secret")
    for text in (
        "DEFINE FIELD word2 ON secret TYPE int ASSERT word = 1",
        "DEFINE FIELD n ON secret TYPE string",
    ):
        answer = await house.http("eve", text)
        assert answer.status == 422, answer.body
        assert set(answer.error["detail"]) <= {"table", "field"}
        assert CANARY.encode() not in answer.body and b"secret:1" not in answer.body
    await house.here.values("UPDATE secret SET m = 1")
    answer = await house.http("eve", "DEFINE INDEX m ON secret FIELDS m UNIQUE")
    assert answer.error["detail"] == {"index": "m", "table": "secret"}


LEAKS: Final = lines(
    """
    DEFINE FIELD leak ON open TYPE any DEFAULT (SELECT * FROM secret)
    DEFINE FIELD leak ON open TYPE any DEFAULT [{ a: (SELECT VALUE word FROM secret:1) }]
    DEFINE FIELD leak ON open TYPE any DEFAULT secret:1.word
    DEFINE FIELD leak ON open TYPE any DEFAULT secret:1.next.word
    DEFINE FIELD leak ON open TYPE any DEFAULT secret:1['word']
    DEFINE FIELD leak ON open TYPE any DEFAULT secret:1.*
    DEFINE FIELD leak ON open TYPE any DEFAULT IF_NO_SUCH ?? secret:1.word
    DEFINE FIELD leak ON open TYPE any ASSERT secret:1.n = 7
    DEFINE FIELD leak ON open TYPE any ASSERT (SELECT * FROM secret WHERE n = 7) != []
    """
)


async def test_nothing_is_defined_that_runs_with_anothers_rights(house: House) -> None:
    """Neither by who may define and not read, nor by an owner: the next writer would copy it."""
    await house.admit("eve", "member")
    Granted(house.here.node).grant("eve", Verb.DEFINE, "shop", "main", "open")
    await house.here.values("DEFINE FIELD OVERWRITE link ON open TYPE record<secret>")
    for text in (*LEAKS, "DEFINE FIELD leak ON open TYPE any DEFAULT link.word"):
        answer = await house.http("eve", text)
        assert answer.status == 400 and answer.error["code"] == "BadRequest", (text, answer.body)
        altered = text.replace("DEFINE FIELD", "DEFINE FIELD OVERWRITE")
        told = await house.here.answer(altered)
        assert told.refusal is not None and told.refusal.code == "BadRequest", text
        assert (await house.here.value("INFO FOR TABLE open"))["fields"][0]["name"] == "link"


async def test_what_shows_only_when_it_is_met_is_not_followed_either(house: House) -> None:
    """A link behind a field of any type, and one that a function makes."""
    await house.admit("eve", "member")
    Granted(house.here.node).grant("eve", Verb.DEFINE, "shop", "main", "open")
    for leak in ("other.word", "$this.other['word']", "type::record('secret', 1).word"):
        await house.http("eve", f"DEFINE FIELD OVERWRITE leak ON open TYPE any DEFAULT {leak}")
        told = await house.here.answer("CREATE open:9 SET link = secret:1, other = secret:1")
        assert told.refusal is not None and told.refusal.code == "TypeRefused", leak
        assert CANARY not in told.refusal.message
    assert await house.here.value("SELECT * FROM open:9") == []


async def test_a_definition_of_an_earlier_version_is_not_run(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may hold what can't be defined any more."""
    with monkeypatch.context() as earlier:
        for name in ("check_definition", "check_links"):
            earlier.setattr(schema, name, lambda *_: None)
        await house.here.values(
            "DEFINE FIELD OVERWRITE leak ON open TYPE any DEFAULT (SELECT * FROM secret)"
        )
    told = await house.here.answer("CREATE open:9")
    assert told.refusal is not None and told.refusal.code == "TypeRefused"
    assert "redefine it without the SELECT" in told.refusal.message


# --- rights that change ---------------------------------------------------------------------------


async def test_a_changed_role_acts_on_what_is_under_way(house: House) -> None:
    """On a script between two of its statements, and on every session."""
    here = house.here
    await house.admit("eve", "editor")
    wait = "SELECT * FROM open; TAKE FROM mine AS g WAIT 1m; SELECT * FROM secret"
    await here.values("DEFINE GROUP g ON mine DEADLINE 1m")
    peer = house.peers["eve"]
    peer.say(FrameKind.RUN, 7, {"script": wait, "ns": "shop", "db": "main"})
    while not here.node.registry.waiting("wire"):
        assert (await here.value("RETURN 1")) == 1
    await declare(here.node, "eve", "member")  # without the statement, which would end its sessions
    await here.value("PUBLISH INTO mine VALUE 1")
    message = await peer.hear()
    assert message is not None and message.kind is FrameKind.ERROR
    assert "'Unknown'" in repr(message.body) and CANARY not in repr(message.body)
    answer = await house.http("eve", "SELECT * FROM open")
    assert answer.status == 401


# --- the checker ----------------------------------------------------------------------------------


def _unjudged(run: Execution, name: str) -> Table:
    of, name_of = database_in(run.place)
    namespace = places.namespace(run.transaction, of)
    database = places.database(run.transaction, namespace, name_of)
    return tables.table(run.transaction, database, name)


def _record(run: Execution, record: RecordId, verbs: Verbs = READ) -> dict[str, Any] | None:
    """`Execution.record` as it was once: by a name that nobody has judged."""
    raw = records.read(run.transaction, _unjudged(run, record.table), record.id)
    return None if raw is None else {"id": record, **unpack_object(raw)}


def _raw(run: Execution, record: RecordId, verbs: Verbs = READ) -> bytes | None:
    return records.read(run.transaction, _unjudged(run, record.table), record.id)


FAULTS: Final[dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "everybody holds everything": lambda patch: patch.setattr(
        Privileges, "_judge", lambda self, securable: (ALL, True, ())
    ),
    "everybody sees everything": lambda patch: patch.setattr(Privileges, "sees", lambda *_: True),
    "links are followed by their names": lambda patch: patch.setattr(Execution, "record", _record),
    "records are read by their names": lambda patch: patch.setattr(Execution, "raw", _raw),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(
    house: House, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    await house.admit("eve", "member")
    FAULTS[fault](monkeypatch)
    found = 0
    for text in ROUNDABOUT:
        try:
            await refused(house, text)
        except AssertionError:
            found += 1
    assert found, fault

"""Which statements a node without the writable role refuses, and when."""

from __future__ import annotations

import pytest

from actors.scripts import actor  # noqa: F401  (handlers)
from actors.scripts.handlers import HANDLERS
from language.parser import parse
from protocol.errors import NotWritable
from tests.nodes import Running

WRITING = (
    "DEFINE NAMESPACE n", "DROP NAMESPACE n", "DEFINE DATABASE n.d", "DROP DATABASE n.d",
    "DEFINE TABLE t", "ALTER TABLE t SET SCHEMAFULL", "DROP TABLE t",
    "DEFINE FUNCTION f() { 1 }", "DROP FUNCTION f",
    "DEFINE ANALYZER w TOKENIZERS class", "DROP ANALYZER w",
    "DEFINE FIELD f ON t TYPE int", "ALTER FIELD f ON t SET TYPE string", "DROP FIELD f ON t",
    "DEFINE INDEX i ON t FIELDS f", "REBUILD INDEX i ON t", "DROP INDEX i ON t",
    "DEFINE USER u ROLE owner PASSWORD 'password'", "ALTER USER u SET PASSWORD 'password'",
    "DROP USER u", "GRANT READ ON TABLE t TO u", "REVOKE READ ON TABLE t FROM u",
    "CREATE t", "INSERT INTO t []", "UPSERT t:1 SET a = 1", "UPDATE t SET a = 1", "DELETE t",
    "DEFINE SPACE s", "DROP SPACE s", "DROP KEYS IN s PREFIX 'a'",
    "SET 'k' IN s VALUE 1", "SWAP 'k' IN s EXPECT 1 VALUE 2", "INCR 'k' IN s",
    "DELETE 'k' FROM s", "EXPIRE 'k' IN s 1m", "PERSIST 'k' IN s",
    "LOCK 'k' IN s HOLDER 'h' EXPIRE 1m", "UNLOCK 'k' IN s HOLDER 'h'",
    "DEFINE TOPIC q", "ALTER TOPIC q SET KEEP 1h", "DROP TOPIC q", "TRIM TOPIC q BEFORE 1",
    "PUBLISH INTO q VALUE 1", "REDRIVE FROM d TO q",
    "DEFINE READER r ON q", "COMMIT READER r ON q AT 1", "ALTER READER r ON q SET POSITION END",
    "DROP READER r ON q",
    "DEFINE GROUP g ON q DEADLINE 1s", "ALTER GROUP g ON q SET IN FLIGHT 2", "DROP GROUP g ON q",
    "MEASURE INDEX i ON t",
    "TAKE FROM q AS g", "ACK q AS g RECEIPTS []", "NACK q AS g RECEIPTS []",
    "EXTEND q AS g RECEIPTS [] BY 1s", "GIVE UP q AS g RECEIPTS []",
    "RESTORE SCRIPT FROM 'a'",
    "DEFINE VAULT v", "ALTER VAULT v SET VERSIONS 2", "DROP VAULT v", "ROTATE VAULT v",
    "WRITE 'k' IN VAULT v VALUE 1", "ERASE 'k' FROM VAULT v",
    "DEFINE REPLICA n PEER 'n:1'", "ALTER REPLICA n ROLES NONE", "DROP REPLICA n",
    "CREATE JOIN TOKEN", f"REVOKE CERTIFICATE {'ab' * 32}",
    "REVEAL 'k' FROM VAULT v", "LIST FROM VAULT v",  # for their entries
)  # fmt: skip
"""One of each kind, of things that are not there: it is refused before they are looked for."""


def kind_of(text: str) -> type:
    (statement,) = parse(text).statements
    return type(statement)


def test_there_is_one_of_each_kind() -> None:
    declared = {kind for kind, handler in HANDLERS.items() if handler.writes}
    assert {kind_of(text) for text in WRITING} == declared


@pytest.mark.parametrize("text", WRITING)
def test_a_statement_that_changes_something_says_so(text: str) -> None:
    assert HANDLERS[kind_of(text)].writes


async def test_what_changes_something_is_refused_before_anything_is_looked_for(
    node: Running,
) -> None:
    await node.values("DEFINE NODE ROLES serving")
    before = node.node.committer.committed
    for text in WRITING:
        for script in (text, f"BEGIN; {text}; COMMIT", f"IF true {{ {text} }}"):
            refusal = (await node.answer(script)).refusal
            assert type(refusal) is NotWritable, (script, refusal)
    assert node.node.committer.committed == before

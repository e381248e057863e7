"""Statements on topics that are none."""

from __future__ import annotations

import pytest

from language.parser import parse
from protocol.errors import Refusal

REFUSED = """
DEFINE TOPIC
DEFINE TOPIC t KEEP 5
DEFINE TOPIC t KEEP 1s KEEP 2s
DEFINE TOPIC t FULL MAYBE
DEFINE TOPIC t BYTES 10TiB5
DEFINE GROUP g ON t
DEFINE GROUP g ON t IN FLIGHT 5
DEFINE GROUP g ON t DEADLINE 30
DEFINE READER r ON t AT
ALTER TOPIC t
ALTER GROUP g ON t SET
ALTER GROUP g ON t SET DEADLINE 1s, DEADLINE 2s
PUBLISH INTO t
PUBLISH INTO t VALUE 1 VALUES [1]
PUBLISH INTO t VALUES [1] ID 'x'
PUBLISH INTO t VALUE 1 DELAY 1s AT d'2026-01-02T03:04:05Z'
READ FROM t
READ FROM t AS r AFTER 5
TAKE FROM t
TAKE 5 t AS g
ACK t AS g
ACK t RECEIPTS []
EXTEND t AS g RECEIPTS []
GIVE t AS g RECEIPTS []
REDRIVE FROM d
TRIM TOPIC t
""".strip().splitlines()


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_statement_is_refused_at_its_place(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse(text)
    assert refused.value.status == 400
    assert {"line", "column"} <= set(
        refused.value.detail
    ) or refused.value.code != "UnexpectedToken"

"""The scripts of the case files, broken at random and sent to a real node: none makes it fail.

Those that are still of the language run."""

from __future__ import annotations

import http.client
import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from language.parser import parse
from protocol.errors import CATALOGUE, Refusal
from tests.language.test_mutations import mutated, scripts
from tests.processes import START_SECONDS, NodeProcess, serving

MALFORMED = 1000
SETUP = """
DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE main; USE shop.main;
DEFINE TABLE t; DEFINE TABLE city; INSERT INTO city [{ id: 1, name: 'Oslo', people: 709037 }];
"""
OF_THE_WHOLE_NODE = ("NODE", "USER", "KILL")
"""Words of statements that would change who may ask the next one."""


@dataclass
class Client:
    node: NodeProcess

    def __post_init__(self) -> None:
        token = self.node.request("POST", "/session").json["token"]
        self._fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection(
            *self.node.address("http"), timeout=START_SECONDS
        )

    def run(self, text: str) -> tuple[int, dict[str, Any]]:
        fields = {"script": text, "ns": "shop", "db": "main", "timeout": "2s"}
        self._connection.request("POST", "/script", json.dumps(fields), self._fields)
        answer = self._connection.getresponse()
        found = json.loads(answer.read())
        assert isinstance(found, dict)
        return answer.status, found

    def close(self) -> None:
        self._connection.close()


def parses(text: str) -> bool:
    try:
        parse(text)
    except Refusal:
        return False
    return True


def check(text: str, status: int, answer: dict[str, Any], malformed: bool) -> str:
    """The code of an answer, empty when there is no error; an answer that may not be is raised."""
    error = answer.get("error")
    if error is None:
        assert status == 200 and not malformed, (text, answer)
        return ""
    assert status < 500 or error["code"] == "Full", (text, answer)  # a topic that was bounded
    assert error["code"] in CATALOGUE and status == error["status"], (text, error)
    lines = text.split("\n")
    assert 1 <= error["line"] <= len(lines), (text, error)
    assert 1 <= error["column"] <= len(lines[error["line"] - 1]) + 1, (text, error)
    if malformed:
        assert answer["results"] == [] and error["detail"]["near"].endswith("^"), (text, error)
    return str(error["code"])


def test_a_thousand_malformed_scripts_are_each_refused_by_name_and_place(tmp_path: Path) -> None:
    dice, originals = random.Random(20261121), scripts()
    refused, ran = Counter[str](), Counter[str]()
    with serving(tmp_path / "store") as node:
        client = Client(node)
        assert client.run(SETUP)[0] == 200
        while refused.total() < MALFORMED:
            text = mutated(dice, dice.choice(originals), originals)
            malformed = not parses(text)
            if not malformed and any(word in text.upper() for word in OF_THE_WHOLE_NODE):
                continue
            counted = refused if malformed else ran
            counted[check(text, *client.run(text), malformed)] += 1
        assert client.run("RETURN 1")[1]["results"][0]["value"] == 1
        client.close()
        assert node.stop() == 0
        assert not [line for line in node.lines if line.get("level") == "error"]
    print(f"{refused.total()} malformed over HTTP: {dict(refused)}; {ran.total()} ran: {dict(ran)}")
    assert refused["UnexpectedToken"] > MALFORMED / 2 and len(refused) >= 4
    assert ran.total() > 50 and len(ran) >= 4


@pytest.mark.parametrize(
    "status, answer",
    [
        (500, {"results": [], "error": {"code": "Failed", "status": 500}}),
        (200, {"results": []}),
        (400, {"results": [], "error": {"code": "Odd", "status": 400, "line": 1, "column": 1}}),
        (
            400,
            {
                "results": [],
                "error": {"code": "UnexpectedToken", "status": 400, "line": 2, "column": 1},
            },
        ),
    ],
)
def test_the_check_catches_a_wrong_answer(status: int, answer: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check("SELEC 1", status, answer, malformed=True)

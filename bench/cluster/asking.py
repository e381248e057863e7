"""What is asked of the nodes: scripts over HTTP, of one node or of whoever leads."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bench.cluster.plan import NodeAt, Plan

PLACE: Final = {"ns": "chaos", "db": "chaos"}
SECONDS: Final = 2.0
"""A request that takes longer has an unknown end."""
NOT_DONE: Final = frozenset(
    {"NotWritable", "NotEnoughReplicas", "Busy", "Draining", "Conflict", "DiskFull"}
)
"""Refusals after which nothing has happened, unless they say that something was committed."""


class Refused(Exception):
    """The node said no, and nothing was done."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = str(error["code"])


class Unknown(Exception):
    """Whether it was done is not known."""


class Answered(NamedTuple):
    """What came of a script."""

    values: list[Any]
    sequence: int
    """Of its last commit, or what it has read at."""
    moment: str | None
    """The one that was read, where one was asked for."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Somebody who is signed in wherever they ask."""

    plan: Plan
    seconds: float = SECONDS
    """How long an answer is waited for."""

    def script(self, node: NodeAt, text: str, **fields: object) -> list[Any]:
        """The results of a script. Raises as `ask`."""
        return self.ask(node, text, **fields).values

    def ask(self, node: NodeAt, text: str, **fields: object) -> Answered:
        """Run a script.

        :raises Refused: it was refused, and is known not to have been done
        :raises Unknown: anything else came, or nothing
        """
        pair = base64.b64encode(f"{self.plan.user}:{self.plan.password}".encode()).decode()
        head = {"Authorization": f"Basic {pair}", "Content-Type": "application/json"}
        body = json.dumps({"script": text, **fields}).encode()
        connection = http.client.HTTPConnection("127.0.0.1", node.http, timeout=self.seconds)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise Refused({"code": "NotReached", "message": str(error)}) from error
        try:
            connection.request("POST", "/script", body, head)
            answer = json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unknown(f"{node.name} did not answer: {error}") from error
        finally:
            connection.close()
        if "error" in answer:
            told = answer["error"]
            if told["code"] in NOT_DONE and "committed" not in told.get("detail", {}):
                raise Refused(told)
            raise Unknown(json.dumps(told))
        values = [result["value"] for result in answer["results"]]
        return Answered(values, answer["seq"], answer.get("moment"))

    def value(self, node: NodeAt, text: str, **fields: object) -> Any:
        """The value of the last statement. Raises as `ask`."""
        return self.script(node, text, **fields)[-1]

    def leader(self) -> NodeAt | None:
        """Who takes writes just now, as far as the nodes say."""
        for node in self.plan.nodes:
            try:
                told = self.value(node, "INFO FOR NODE")
            except (Refused, Unknown):
                continue
            if leads(told):
                return node
        return None

    def is_in_sync(self, node: NodeAt) -> bool:
        """Whether a node holds everything, as it says itself: it leads, or follows in sync."""
        try:
            told = self.value(node, "INFO FOR NODE")
        except (Refused, Unknown):
            return False
        return leads(told) or told["upstream"] == "in sync"


def leads(told: dict[str, Any]) -> bool:
    """Whether a node leads, as its INFO FOR NODE says. One that is cut off has no lease left, and
    does not know yet that another leads."""
    return told["lease"] not in (None, {"$dur": "0s"})

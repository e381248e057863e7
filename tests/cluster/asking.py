"""Requests to the nodes: scripts over HTTP, to one node or to the leader."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.cluster.plan import ClusterPlan, NodeAt

PLACE: Final = {"ns": "chaos", "db": "chaos"}
SECONDS: Final = 2.0
"""Timeout of a request, seconds; after it the outcome is unknown."""
NOT_DONE: Final = frozenset(
    {"NotWritable", "NotEnoughReplicas", "Busy", "Draining", "Conflict", "DiskFull"}
)
"""Errors after which nothing has happened, unless their detail has `committed`."""


class NodeRefused(Exception):
    """The node refused the request, and nothing was done."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = str(error["code"])


class ResultUnknown(Exception):
    """The outcome of the request is unknown: it may have been committed."""


class ScriptResults(NamedTuple):
    values: list[Any]
    sequence: int
    """Sequence of its last commit, or of the snapshot that it has read."""
    moment: str | None
    """Pinned snapshot that was read, if one was requested."""


@dataclass(frozen=True, slots=True)
class ClusterClient:
    """A client that signs in to any node."""

    plan: ClusterPlan
    seconds: float = SECONDS
    """Timeout of an answer, seconds."""

    def script(self, node: NodeAt, text: str, **fields: object) -> list[Any]:
        """Return the values of a script. Raises as `ask`."""
        return self.ask(node, text, **fields).values

    def ask(self, node: NodeAt, text: str, **fields: object) -> ScriptResults:
        """Run a script.

        :raises Refused: it was refused, and nothing was done
        :raises Unknown: any other answer, or none
        """
        pair = base64.b64encode(f"{self.plan.user}:{self.plan.password}".encode()).decode()
        head = {"Authorization": f"Basic {pair}", "Content-Type": "application/json"}
        body = json.dumps({"script": text, **fields}).encode()
        connection = http.client.HTTPConnection("127.0.0.1", node.http, timeout=self.seconds)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise NodeRefused({"code": "NotReached", "message": str(error)}) from error
        try:
            connection.request("POST", "/script", body, head)
            answer = json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ResultUnknown(f"{node.name} did not answer: {error}") from error
        finally:
            connection.close()
        if "error" in answer:
            told = answer["error"]
            if told["code"] in NOT_DONE and "committed" not in told.get("detail", {}):
                raise NodeRefused(told)
            raise ResultUnknown(json.dumps(told))
        values = [result["value"] for result in answer["results"]]
        return ScriptResults(values, answer["seq"], answer.get("moment"))

    def value(self, node: NodeAt, text: str, **fields: object) -> Any:
        """Return the value of the last statement. Raises as `ask`."""
        return self.script(node, text, **fields)[-1]

    def leader(self) -> NodeAt | None:
        """Return the node that accepts writes, according to the nodes; None: none does."""
        for node in self.plan.nodes:
            try:
                told = self.value(node, "INFO FOR NODE")
            except (NodeRefused, ResultUnknown):
                continue
            if leads(told):
                return node
        return None

    def is_in_sync(self, node: NodeAt) -> bool:
        """True if a node reports that it holds everything: it leads, or follows in sync."""
        try:
            told = self.value(node, "INFO FOR NODE")
        except (NodeRefused, ResultUnknown):
            return False
        return leads(told) or told["upstream"] == "in sync"


def leads(told: dict[str, Any]) -> bool:
    """True if INFO FOR NODE shows a valid lease.

    A node that is cut off and does not know of its successor has no lease left.
    """
    return told["lease"] not in (None, {"$dur": "0s"})

"""Parser and validator of etcd's responses.

Values must have the expected form and be within the bounds of the nodes; any other raises
ValueError. So no value that a node can't hold gets into the file CLUSTER, into frames or to other
nodes, whichever server responds in etcd's place.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import Any, Final

from protocol.agreement import (
    AgreedState,
    CompareAndSetResult,
    InSyncReplicas,
    LeaderEntry,
    ReleasedFrame,
    ReleaseReport,
)

REVISION_MAX: Final = (1 << 63) - 1
"""Upper bound: revisions, leases and sequences are int64 in etcd."""
CLUSTER_MAX: Final = (1 << 64) - 1
NODE_CHARACTERS: Final = 64
"""Maximum length of a node id."""
TOKEN_CHARACTERS: Final = 16_384
_OWN: Final = re.compile(r"etcdserver: [A-Za-z0-9 ,.:'()-]{1,120}")
"""Pattern of etcd's own refusals."""
_DIGITS: Final = len(str(CLUSTER_MAX))


def parsed(data: bytes | str) -> dict[str, Any]:
    """Parse a JSON object. :raises ValueError: it is not one, or nests too deep"""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("JSON that nests too deep") from None
    return _object(found)


def token(answer: dict[str, Any]) -> str:
    """Return the token of a sign-in. :raises ValueError: there is none that fits in a header"""
    found = answer["token"]
    if not isinstance(found, str) or len(found) > TOKEN_CHARACTERS:
        raise ValueError("no token")
    if not found.isprintable() or not found.isascii():
        raise ValueError("no token")
    return found


def refusal(answer: dict[str, Any]) -> tuple[int, str]:
    """Return the gRPC code and the text of a refusal.

    Text that is not etcd's own is replaced: the address may lead to another server, whose response
    must not be shown to the user that configured it.
    """
    code, found = answer.get("code"), answer.get("message") or answer.get("error")
    said = (
        found
        if isinstance(found, str) and _OWN.fullmatch(found)
        else "an answer that is not etcd's"
    )
    return (code if isinstance(code, int) else -1), said


def granted(answer: dict[str, Any]) -> int:
    """Return the id of a new lease. :raises ValueError: it is not one"""
    return _number(answer["ID"], least=1)


def left(answer: dict[str, Any]) -> int:
    """Return the remaining seconds of a lease; -1 or 0 if it has lapsed. :raises ValueError:"""
    return _number(_object(answer["result"]).get("TTL", 0), least=-1)


def answered(answer: dict[str, Any]) -> CompareAndSetResult:
    """Decode the result of a conditional transaction. :raises ValueError: it is not one"""
    return CompareAndSetResult(answer.get("succeeded") is True, agreed(answer))


def agreed(answer: dict[str, Any]) -> AgreedState:
    """Decode the four keys at the end of a transaction. :raises ValueError: they are missing"""
    lead, insync, lineage, released = (
        _object(found["response_range"]).get("kvs", [None])[0] for found in answer["responses"][-4:]
    )
    header = answer["header"]
    return AgreedState(
        cluster=str(_number(header["cluster_id"], most=CLUSTER_MAX)),
        revision=_number(header["revision"]),
        lead=None
        if lead is None
        else LeaderEntry(_node(_text(lead)), _number(lead["create_revision"])),
        insync=None if insync is None else _insync(insync),
        lineage=0 if lineage is None else _number(_text(lineage)),
        told=None if released is None else _release_report(released),
    )


def _insync(found: dict[str, Any]) -> InSyncReplicas:
    value = parsed(_text(found))
    members = value["members"]
    if not isinstance(members, list):
        raise ValueError("no members")
    revision = _number(found["mod_revision"])
    return InSyncReplicas(_number(value["epoch"]), frozenset(map(_node, members)), revision)


def _release_report(found: dict[str, Any]) -> ReleaseReport:
    value = parsed(_text(found))
    released = ReleasedFrame(_number(value["epoch"]), _number(value["sequence"]))
    return ReleaseReport(released, _number(found["mod_revision"]))


def _object(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _text(found: dict[str, Any]) -> str:
    return b64decode(found.get("value", ""), validate=True).decode()


def _node(found: object) -> str:
    if not isinstance(found, str) or not 0 < len(found) <= NODE_CHARACTERS:
        raise ValueError("no id of a node")
    if not found.isascii() or not found.isprintable():
        raise ValueError("no id of a node")
    return found


def _number(found: object, least: int = 0, most: int = REVISION_MAX) -> int:
    """Return an integer, given as digits or a JSON number. :raises ValueError: it is not one, or
    out of bounds"""
    if isinstance(found, str) and len(found) <= _DIGITS:
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise ValueError("no number within its bounds")
    return found

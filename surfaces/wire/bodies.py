"""Bodies of wire messages: maps to requests, responses to maps. Decoding is strict: an unknown
field is refused, so that a misspelt `timeout` is not silently ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from actors.scripts import administering
from protocol import limits
from protocol.binary import duration
from protocol.errors import BadRequest, NotWritable, Refusal, VersionNotSupported
from protocol.requests import Caller, NodeStatus, Result, RunScript, ScriptAnswer
from protocol.values import MICROSECOND

MAGIC: Final = "STORE"
MAJOR: Final = 1
MINOR: Final = 10
"""Newest minor version that this node speaks; `docs/wire.md` lists the changes of each."""
MINOR_OF_FEEDS: Final = 1
MINOR_OF_STREAMS: Final = 5
MINOR_OF_AFTER: Final = 7
MINOR_OF_SEQUENCES: Final = 8
MINOR_OF_EPOCHS: Final = 9
MINOR_OF_CHANGED: Final = 10
CLIENT_CHARACTERS: Final = 128
ENVELOPE_BYTES: Final = 4 * limits.KIB
"""Maximum bytes around the results in a response frame, including an error."""

_HELLO: Final = frozenset({"magic", "major", "minor", "client", "user", "password", "token"})
_AUTH: Final = frozenset({"user", "password", "token"})
_RUN: Final[dict[str, type]] = {
    "script": str, "params": dict, "ns": str, "db": str, "timeout": timedelta, "stream": bool,
    "reason": str, "moment": str, "keep": timedelta, "record": bool,
    "after": int, "current": bool,
}  # fmt: skip

Wanted = TypeVar("Wanted")
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Credential:
    """Credential of a peer: user and password, or a session token."""

    user: str | None
    password: str | None
    token: str | None


def _known(what: str, body: dict[str, Any] | None, fields: frozenset[str]) -> dict[str, Any]:
    if body is None:
        return {}
    if not body.keys() <= fields:
        raise _unknown(what, sorted(body.keys() - fields)[0])
    return body


def _unknown(what: str, name: str) -> BadRequest:
    return BadRequest(f"unknown field {name[:64]!r} in {what}", field=name[:64])


def _mistyped(what: str, name: str, kind: type, value: object) -> BadRequest:
    return BadRequest(
        f"{what} {name} must be a {kind.__name__}, not a {type(value).__name__}", field=name
    )


def field(what: str, body: dict[str, Any], name: str, kind: type[Wanted]) -> Wanted | None:
    """Return a field of a body; None if it is absent or nil.

    :raises BadRequest: it has another type
    """
    value = body.get(name)
    if value is not None and type(value) is not kind:
        raise _mistyped(what, name, kind, value)
    return value


def read_hello(body: dict[str, Any] | None) -> tuple[int, Credential | None]:
    """Decode HELLO. Return the minor version to speak, and the credential.

    :raises BadRequest: not a HELLO of this protocol
    :raises VersionNotSupported: no version is common to both
    """
    body = _known("HELLO", body, _HELLO)
    if body.get("magic") != MAGIC:
        raise BadRequest(f"HELLO magic must be {MAGIC!r}")
    spoken = {"major": MAJOR, "minor": [0, MINOR]}
    major = field("HELLO", body, "major", int)
    if major != MAJOR:
        raise VersionNotSupported(f"this node speaks major {MAJOR}, not {major}", **spoken)
    minor = field("HELLO", body, "minor", list)
    if minor is None or len(minor) != 2 or not all(type(n) is int and n >= 0 for n in minor):
        raise BadRequest(
            "HELLO minor must be an array of the lowest and the highest", field="minor"
        )
    lowest, highest = minor
    if lowest > MINOR or highest < lowest:
        raise VersionNotSupported(f"this node speaks minor 0 to {MINOR}, not {minor}", **spoken)
    client = field("HELLO", body, "client", str)
    if client is not None and len(client) > CLIENT_CHARACTERS:
        raise BadRequest(f"HELLO client has at most {CLIENT_CHARACTERS} characters", field="client")
    return min(highest, MINOR), _credential("HELLO", body)


def read_auth(body: dict[str, Any] | None) -> Credential | None:
    """Decode AUTH. Return the credential, or None to sign out.

    :raises BadRequest: malformed
    """
    return _credential("AUTH", _known("AUTH", body, _AUTH))


def _credential(what: str, body: dict[str, Any]) -> Credential | None:
    user = field(what, body, "user", str)
    password = field(what, body, "password", str)
    token = field(what, body, "token", str)
    if user is None and password is None and token is None:
        return None
    if (user is None) != (password is None) or (user is None) == (token is None):
        raise BadRequest(f"{what} takes user and password, or a token, or neither")
    return Credential(user, password, token)


def operation(
    kind: str, body: dict[str, Any], operations: Mapping[str, tuple[frozenset[str], Read]]
) -> Read:
    """Return the decoder for a body, by its `op`.

    :param operations: allowed fields and decoder of each operation
    :raises BadRequest: unknown operation, or a field that it does not have
    """
    word = body.get("op")
    found = operations.get(word) if type(word) is str else None
    if found is None:
        raise BadRequest(f"{kind} op must be one of {', '.join(operations)}", field="op")
    fields, read = found
    if not body.keys() <= fields:
        unknown = sorted(str(name) for name in body.keys() - fields)[0][:64]
        raise BadRequest(f"unknown field {unknown!r} in {kind} {word}", field=unknown)
    return read


def administers(body: dict[str, Any] | None) -> bool:
    """True if a RUN only lists or ends running work."""
    script = (body or {}).get("script")
    return isinstance(script, str) and administering.administers(script)


def read_run(body: dict[str, Any] | None, caller: Caller, name: str, minor: int) -> RunScript:
    """Decode RUN.

    :param name: id of the request in responses and logs
    :param minor: the negotiated minor version
    :raises BadRequest: a field is missing, unknown, or of the wrong type
    """
    body = body or {}
    for given, value in body.items():
        kind = _RUN.get(given)
        if kind is None:
            raise _unknown("RUN", given)
        if value is not None and type(value) is not kind:
            raise _mistyped("RUN", given, kind, value)
    script = body.get("script")
    if script is None:
        raise BadRequest("RUN needs a script", field="script")
    timeout = body.get("timeout")
    if timeout is not None and timeout <= timedelta(0):
        raise BadRequest("RUN timeout must be above zero", field="timeout")
    stream = bool(body.get("stream"))
    if stream and minor < MINOR_OF_STREAMS:
        raise BadRequest(
            f"RUN stream needs minor {MINOR_OF_STREAMS}, the connection has {minor}", field="stream"
        )
    reason = body.get("reason")
    if reason is not None and len(reason) > limits.REASON_CHARACTERS:
        raise BadRequest(
            f"RUN reason has at most {limits.REASON_CHARACTERS} characters", field="reason"
        )
    after = body.get("after")
    if after is not None:
        check_after("RUN", after, minor, MINOR_OF_AFTER)
    current = bool(body.get("current"))
    if current and minor < MINOR_OF_SEQUENCES:
        raise BadRequest(
            f"RUN current needs minor {MINOR_OF_SEQUENCES}, the connection has {minor}",
            field="current",
        )
    keep = body.get("keep")
    return RunScript(
        caller=caller,
        script=script,
        request=name,
        parameters=body.get("params") or {},
        namespace=body.get("ns"),
        database=body.get("db"),
        timeout_us=None if timeout is None else timeout // MICROSECOND,
        reason=reason,
        answer_bytes=limits.FRAME_BYTES - ENVELOPE_BYTES,
        moment=body.get("moment"),
        keep_us=None if keep is None else keep // MICROSECOND,
        hands_over=("STATE",) if stream else (),
        record=bool(body.get("record")),
        after=after,
        current=current,
    )


def check_after(what: str, after: int, minor: int, needed: int) -> None:
    """Check the sequence (`after`) that a read has to wait for.

    :param minor: the negotiated minor version
    :param needed: first minor version with this field in this message
    :raises BadRequest: not a sequence, or not supported by that minor version
    """
    if minor < needed:
        raise BadRequest(
            f"{what} after needs minor {needed}, the connection has {minor}", field="after"
        )
    if not 0 <= after <= limits.SEQUENCE_MAX:
        raise BadRequest(
            f"{what} after must be a sequence, 0 to {limits.SEQUENCE_MAX}, not {after}",
            field="after",
        )


def welcome(
    minor: int, status: NodeStatus, elsewhere: NotWritable | None, caller: Caller | None
) -> dict[str, Any]:
    """Return the body of WELCOME.

    :param elsewhere: reason why this node takes no writes; None: it does
    """
    body: dict[str, Any] = {
        "major": MAJOR,
        "minor": minor,
        "version": status.version,
        "node": status.node_id,
        "limits": {
            "frame": limits.FRAME_BYTES,
            "depth": limits.DEPTH,
            "elements": limits.ELEMENTS,
            "containers": limits.CONTAINERS,
            "running": limits.RUNNING,
        },
        "user": None
        if caller is None
        else {"name": caller.user, "role": caller.role, "space": caller.space},
    }
    if minor >= MINOR_OF_AFTER:
        leader = [] if elsewhere is None else list(elsewhere.leader)
        body |= {"writable": elsewhere is None, "leader": leader}
    return body


def results(found: tuple[Result, ...], minor: int) -> list[dict[str, Any]]:
    """Return the `results` of ANSWER and ERROR, one map for each executed statement."""
    told: list[dict[str, Any]] = [
        {
            "value": result.value,
            "kind": result.kind,
            "rows": result.rows,
            "took": duration(result.took_us),
        }
        for result in found
    ]
    if minor >= MINOR_OF_CHANGED:
        for body, result in zip(told, found, strict=True):
            if result.changed is not None:
                body["changed"] = result.changed
    return told


def answer(found: ScriptAnswer, minor: int) -> dict[str, Any]:
    """Return the body of ANSWER.

    :param minor: the negotiated minor version
    """
    body: dict[str, Any] = {
        "results": results(found.results, minor),
        "seq": found.sequence,
        "store": found.store,
        "epoch": found.epoch,
    }
    if found.moment is not None:
        body["moment"] = found.moment
    return body


def error(
    refusal: Refusal, request: str | None, ran: tuple[Result, ...] = (), minor: int = MINOR
) -> dict[str, Any]:
    """Return the body of ERROR.

    :param minor: the negotiated minor version, needed if a statement was executed
    """
    return {"error": refusal.answer(request), "results": results(ran, minor)}

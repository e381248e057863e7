"""Description of a route for `/openapi.json`: its parameters, bodies and responses.

The node reads requests by the same values: the parameters that a query may have, and the fields of
a body.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from protocol import limits
from protocol.errors import CATALOGUE

Json = dict[str, Any]

STRING: Final[Json] = {"type": "string"}
INTEGER: Final[Json] = {"type": "integer"}
BOOLEAN: Final[Json] = {"type": "boolean"}
NULL_OR_STRING: Final[Json] = {"type": ["string", "null"]}
ANY: Final[Json] = {"description": "a value of the language"}


@dataclass(frozen=True, slots=True)
class RouteParameter:
    """A parameter of a route's query, or a header field."""

    name: str
    text: str
    schema: Json = field(default_factory=lambda: STRING)
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """Description of a method of a path, beyond that of its route."""

    summary: str
    responses: Json
    """Responses by status, without those of refusals."""
    refusals: tuple[int, ...] = ()
    """Statuses of its refusals, beyond those of any route with such a credential."""
    refused: str = "Refused"
    """Schema of its refusals."""
    msgpack: bool = False
    """True if it also answers in msgpack, refusals included."""
    body_required: bool = True
    headers: tuple[RouteParameter, ...] = ()
    """Header fields that it reads."""
    description: str | None = None


def object_of(required: Json, optional: Json | None = None) -> Json:
    """Return the schema of an object with exactly these fields."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def ref(name: str) -> Json:
    """Return a reference to a schema of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def content_of(schema: Json, msgpack: bool = False) -> Json:
    """Return the content of a JSON body, which may be msgpack, too."""
    content = {"application/json": {"schema": schema}}
    return {**content, "application/msgpack": {"schema": schema}} if msgpack else content


def answers(text: str, schema: Json, msgpack: bool = False) -> Json:
    """Return the responses of a route that answers 200 with a body of a schema."""
    return {"200": {"description": text, "content": content_of(schema, msgpack)}}


def parameter(name: str, text: str, *, required: bool = False, **schema: Any) -> RouteParameter:
    """Return a parameter. It is a string unless the schema names another type."""
    return RouteParameter(name, text, {**STRING, **schema}, required)


SCHEMAS: Final[Json] = {
    "Error": object_of(
        {
            "code": {"type": "string", "enum": sorted(CATALOGUE)},
            "message": STRING,
            "status": INTEGER,
            "retry": {"type": "boolean", "description": "the same request may succeed later"},
            "detail": {"type": "object"},
            "request": NULL_OR_STRING,
        },
        {"statement": INTEGER, "line": INTEGER, "column": INTEGER},
    ),
    "Refused": object_of({"error": ref("Error")}),
    "Health": object_of(
        {
            "status": {"enum": ["well", "closing", "failed", "copying"]},
            "version": STRING,
            "build": {"enum": ["plain", "compiled"]},
            "sequence": INTEGER,
            "uptime": {"type": "number", "description": "seconds"},
        }
    ),
    "Ready": object_of(
        {
            "ready": {"type": "boolean"},
            "reason": {
                "enum": [
                    None, "opening", "draining", "no_roles", "not_serving", "full", "failed",
                    "stranded", "copying",
                ]
            },
            "roles": {"type": "array", "items": STRING},
            "held_up": {"enum": [None, "followers", "etcd", "leader"]},
        },
        {
            "copied": object_of(
                {"stage": STRING, "done": INTEGER, "of": INTEGER},
            )
        },
    ),
    "SignIn": object_of({"user": STRING, "password": STRING}),
    "Session": object_of(
        {
            "token": STRING,
            "expires": {"type": "string", "format": "date-time"},
            "idle": {"type": "string", "description": "idle timeout, a duration"},
            "user": object_of({"name": STRING, "role": STRING, "space": NULL_OR_STRING}),
        }
    ),
    "NewPassword": object_of({"old": STRING, "new": STRING}),
    "Script": object_of(
        {"script": STRING},
        {
            "params": {"type": ["object", "null"], "description": "bound as $name"},
            "ns": NULL_OR_STRING,
            "db": NULL_OR_STRING,
            "timeout": {"type": ["string", "null"], "description": "a duration, such as 5s"},
            "reason": NULL_OR_STRING,
            "moment": {
                "type": ["string", "null"],
                "description": "read at a moment: 'new', or the name of a kept one",
            },
            "keep": {
                "type": ["string", "null"],
                "description": "a duration: keep the moment for this long after the request",
            },
            "record": {
                "type": ["boolean", "null"],
                "description": "write an entry to the statement log although the script only reads",
            },
            "after": {
                "type": ["integer", "null"],
                "minimum": 0,
                "maximum": limits.SEQUENCE_MAX,
                "description": "a sequence that must be visible on the node before the script runs",
            },
            "current": {
                "type": ["boolean", "null"],
                "description": "read the newest commits of the cluster",
            },
        },
    ),
    "Result": object_of(
        {
            "value": {"description": "a value of the language; see docs for its form in JSON"},
            "kind": {"enum": ["rows", "value", "none", "info"]},
            "rows": INTEGER,
            "took": STRING,
        },
        {"changed": {"type": "integer", "description": "records made, changed or deleted"}},
    ),
    "Results": object_of(
        {
            "results": {"type": "array", "items": ref("Result")},
            "seq": {"type": "integer", "description": "committed sequence after the last write"},
            "store": {"type": "string", "description": "id of the store"},
            "epoch": {"type": "integer", "description": "epoch of the store's history"},
            "ns": NULL_OR_STRING,
            "db": NULL_OR_STRING,
        },
        {"moment": {"type": "string", "description": "name of the kept moment"}},
    ),
    "ScriptRefused": object_of(
        {"error": ref("Error")},
        {"results": {"type": "array", "items": ref("Result"), "description": "earlier results"}},
    ),
}  # fmt: skip

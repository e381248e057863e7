"""GET /openapi.json: every route of the table as OpenAPI 3.1."""

from __future__ import annotations

import re
from typing import Any, Final

from protocol import limits
from protocol.errors import CATALOGUE
from protocol.version import VERSION
from surfaces.http import answers, console
from surfaces.http.handler import Handler

Json = dict[str, Any]

STRING: Final[Json] = {"type": "string"}
INTEGER: Final[Json] = {"type": "integer"}
NULL_OR_STRING: Final[Json] = {"type": ["string", "null"]}

EVERYWHERE: Final = (400, 404, 405, 408, 413, 421, 431, 500, 501, 503, 505)
"""Statuses of any route: the request is refused before the route gets it, or the node has no room
or fails."""


def object_of(required: Json, optional: Json | None = None) -> Json:
    """Return the schema of an object with exactly these fields."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def json_of(schema: Json) -> Json:
    """Return the content of a JSON body."""
    return {"application/json": {"schema": schema}}


def _both(schema: Json) -> Json:
    return {**json_of(schema), "application/msgpack": {"schema": schema}}


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
    "Refused": object_of({"error": _ref("Error")}),
    "Health": object_of(
        {
            "status": {"enum": ["well", "closing", "failed", "copying"]},
            "version": STRING,
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
            "results": {"type": "array", "items": _ref("Result")},
            "seq": {"type": "integer", "description": "committed sequence after the last write"},
            "store": {"type": "string", "description": "id of the store"},
            "epoch": {"type": "integer", "description": "epoch of the store's history"},
            "ns": NULL_OR_STRING,
            "db": NULL_OR_STRING,
        },
        {"moment": {"type": "string", "description": "name of the kept moment"}},
    ),
    "ScriptRefused": object_of(
        {"error": _ref("Error")},
        {"results": {"type": "array", "items": _ref("Result"), "description": "earlier results"}},
    ),
}  # fmt: skip

_SCRIPT_HEADERS: Final = [
    {"name": name, "in": "header", "schema": schema, "description": text}
    for name, schema, text in (
        ("Store-Namespace", STRING, "namespace, if the body has no `ns`"),
        ("Store-Database", STRING, "database, if the body has no `db`"),
        ("Store-After", INTEGER, "`after`, if the body has none"),
        ("Store-Current", {"type": "boolean"}, "`current`, if the body has none"),
        ("Store-Record", {"type": "boolean"}, "`record`, if the body has none"),
    )
]

# (method, path) -> summary, security, body, answers, statuses of refusals beyond EVERYWHERE
OPERATIONS: Final[dict[tuple[str, str], Json]] = {
    ("GET", "/"): {
        "summary": "The web console",
        "responses": {
            "200": {"description": "the page", "content": {"text/html": {"schema": STRING}}},
            "304": {"description": "not modified: the copy named by If-None-Match is current"},
        },
    },
    ("GET", "/console/{hash}/{file}"): {
        "summary": "A file of the console",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": STRING, "description": text}
            for name, text in (
                ("hash", "hash of all files, as in the page"),
                ("file", "the rest of the path"),
            )
        ],
        "responses": {
            "200": {
                "description": "the file",
                "content": {
                    kind.decode().partition(";")[0]: {"schema": STRING}
                    for kind in sorted(console.KINDS.values())
                },
            },
            "304": {"description": "not modified: the copy named by If-None-Match is current"},
        },
    },
    ("GET", "/openapi.json"): {
        "summary": "This description",
        "responses": {
            "200": {"description": "OpenAPI 3.1", "content": json_of({"type": "object"})}
        },
    },
    ("GET", "/health"): {
        "summary": "Liveness: the node runs and its store is open",
        "responses": {
            "200": {"description": "alive", "content": json_of(_ref("Health"))},
            "503": {"description": "not alive", "content": json_of(_ref("Health"))},
        },
    },
    ("GET", "/ready"): {
        "summary": "Readiness for traffic",
        "responses": {
            "200": {"description": "ready", "content": json_of(_ref("Ready"))},
            "503": {"description": "not ready", "content": json_of(_ref("Ready"))},
        },
    },
    ("GET", "/metrics"): {
        "summary": "Metrics as Prometheus text",
        "responses": {
            "200": {"description": "figures", "content": {"text/plain": {"schema": STRING}}}
        },
        "refusals": (401, 429),
    },
    ("POST", "/session"): {
        "summary": "Exchange a password for a token",
        "requestBody": {"required": False, "content": json_of(_ref("SignIn"))},
        "responses": {"200": {"description": "signed in", "content": json_of(_ref("Session"))}},
        "refusals": (401, 403, 409, 422, 429),
    },
    ("DELETE", "/session"): {
        "summary": "Sign out",
        "responses": {"204": {"description": "signed out"}},
        "refusals": (401,),
    },
    ("POST", "/password"): {
        "summary": "Change the caller's own password",
        "requestBody": {"required": True, "content": json_of(_ref("NewPassword"))},
        "responses": {"204": {"description": "changed; the user's other sessions have ended"}},
        "refusals": (401, 409, 422, 429),
    },
    ("POST", "/script"): {
        "summary": "Run statements",
        "parameters": _SCRIPT_HEADERS,
        "requestBody": {
            "required": True,
            "content": {"text/plain": {"schema": STRING}, **_both(_ref("Script"))},
        },
        "responses": {"200": {"description": "all results", "content": _both(_ref("Results"))}},
        "refusals": (401, 403, 409, 410, 422, 423, 429),
        "refused": "ScriptRefused",
    },
}

_IN_PATH: Final = [
    {"name": name, "in": "path", "required": True, "schema": STRING, "description": text}
    for name, text in (
        ("ns", "the namespace"),
        ("db", "the database"),
        ("space", "the cache space"),
        ("key", "the rest of the path, percent-encoded once"),
    )
]


def in_query(name: str, text: str, *, required: bool = False, **schema: Any) -> Json:
    """Return a query parameter."""
    found = {"type": "string", **schema}
    return {
        "name": name, "in": "query", "required": required, "description": text, "schema": found,
    }  # fmt: skip


def _on_key(summary: str, answer: Json, *query: Json, **more: Any) -> Json:
    return {
        "summary": summary,
        "parameters": [*_IN_PATH, *query],
        "responses": {"200": {"description": "the result", "content": _both(answer)}},
        "refusals": (401, 403, 409, 422, 429),
        "refused": "Refused",
        **more,
    }


def _value_body(schema: Json) -> Json:
    return {"required": True, "content": {"text/plain": {"schema": STRING}, **_both(schema)}}


def _flag(name: str) -> Json:
    return object_of({name: {"type": "boolean"}})


_LASTS: Final = in_query("expire", "a duration above zero, such as 5m")
_LASTING: Final = {**_LASTS, "required": True}
_HOLDER: Final = in_query("holder", "name of the lock's holder", required=True)
_ANY: Final[Json] = {"description": "a value of the language"}
_KV: Final = "/kv/{ns}/{db}/{space}"

OPERATIONS.update(
    {
        ("GET", _KV): _on_key(
            "Keys of a cache space, in order",
            object_of({"keys": {"type": "array", "items": STRING}}),
            parameters=[
                *_IN_PATH[:3],
                in_query("prefix", "prefix of the keys"),
                in_query("after", "return keys after this one"),
                in_query("limit", "1 to 1000; default 1000", type="integer"),
            ],
        ),
        ("GET", f"{_KV}/key/{{key}}"): _on_key(
            "The value of a key, and its time to live",
            object_of({"value": _ANY, "ttl": NULL_OR_STRING}),
        ),
        ("PUT", f"{_KV}/key/{{key}}"): _on_key(
            "Set a key",
            _flag("written"),
            _LASTS,
            in_query("if", "condition of the write", enum=["absent", "present"]),
            requestBody=_value_body(_ANY),
        ),
        ("DELETE", f"{_KV}/key/{{key}}"): _on_key("Delete a key", _flag("deleted")),
        ("POST", f"{_KV}/swap/{{key}}"): _on_key(
            "Set a key if it holds what is expected",
            _flag("written"),
            _LASTS,
            requestBody=_value_body(object_of({"expect": _ANY, "value": _ANY})),
        ),
        ("POST", f"{_KV}/incr/{{key}}"): _on_key(
            "Count",
            object_of({"value": _ANY}),
            in_query("by", "default 1", type="integer"),
        ),
        ("POST", f"{_KV}/expire/{{key}}"): _on_key(
            "Set the expiry of a key", _flag("found"), _LASTING
        ),
        ("POST", f"{_KV}/persist/{{key}}"): _on_key("Remove the expiry of a key", _flag("found")),
        ("POST", f"{_KV}/lock/{{key}}"): _on_key(
            "Acquire or extend a lock; if held, its fence is in Store-Fence",
            _flag("held"),
            _HOLDER,
            _LASTING,
        ),
        ("POST", f"{_KV}/unlock/{{key}}"): _on_key("Release a lock", _flag("released"), _HOLDER),
    }
)

_FOLLOWED: Final = """Follow a table over a WebSocket: every commit that changes it, once, whole and
in order. An error of the feed itself is a message on the socket, and the close code is then 4000
plus its status. See `docs/feeds.md`."""

OPERATIONS["GET", "/watch"] = {
    "summary": "Follow a table",
    "description": _FOLLOWED,
    "parameters": [
        in_query("ns", "the namespace", required=True),
        in_query("db", "the database", required=True),
        in_query("table", "the table", required=True),
        in_query(
            "from",
            "sequence of the last known commit; 0: from the beginning of the log",
            type="integer",
        ),
        in_query("store", "store of `from`, from the `open` message"),
        in_query("epoch", "epoch of `from`", type="integer"),
        in_query("actions", "comma-separated, of create, update, delete; default all"),
        in_query("before", "1: with the fields before each change", enum=["0", "1"]),
        in_query("where", "a condition on the record"),
        in_query("after", "a sequence that must be visible on the node first", type="integer"),
    ],
    "responses": {
        "101": {"description": "a WebSocket whose text frames are JSON objects"},
    },
    "refusals": (401, 403, 426, 429),
}

OPERATIONS["GET", "/backup"] = {
    "summary": "A backup as a file",
    "parameters": [
        in_query("as", "the form; default snapshot", enum=["snapshot", "log", "script"]),
        in_query("from", "first sequence of a log", type="integer", minimum=1),
    ],
    "responses": {
        "200": {
            "description": "the file",
            "headers": {
                "Store-Backup-Form": {"description": "snapshot, log or script", "schema": STRING},
                "Content-Disposition": {"description": "a file name for it", "schema": STRING},
                "Digest": {"description": "sha-256= and the digest in base64", "schema": STRING},
            },
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    },
    "refusals": (401, 403, 410, 413, 429),
}

_SECURITY: Final[dict[str, list[Json]]] = {
    "none": [],
    "optional": [{}, {"token": []}, {"password": []}],
    "required": [{"token": []}, {"password": []}],
}


def document(credentials: dict[tuple[str, str], str]) -> Json:
    """Return the OpenAPI document.

    :param credentials: for each method and path: none, optional or required
    """
    paths: Json = {}
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method.lower()] = _operation(
            method, path, operation, credentials[method, path]
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "storenode", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _operation(method: str, path: str, given: Json, credential: str) -> Json:
    responses = dict(given["responses"])
    refused = _ref(given.get("refused", "Refused"))
    content = _both(refused) if "refused" in given else json_of(refused)
    for status in sorted({*EVERYWHERE, *given.get("refusals", ())}):
        shown = {"description": _meaning(status), "content": content}
        before = responses.get(str(status))
        if before is not None:  # the status is used by both a normal response and a refusal
            own = before["content"]["application/json"]["schema"]
            shown = {**before, "content": json_of({"oneOf": [own, refused]})}
        responses[str(status)] = shown
    name = re.sub(r"\W+", "_", path).strip("_") or "home"
    kept: Json = {
        key: given[key] for key in ("summary", "parameters", "requestBody") if key in given
    }
    return {
        "operationId": f"{method.lower()}_{name}",
        **kept,
        "security": _SECURITY[credential],
        "responses": dict(sorted(responses.items())),
    }


def _meaning(status: int) -> str:
    codes = [code for code, refusal in CATALOGUE.items() if refusal.status == status]
    return ", ".join(codes)


class OpenApiHandler(Handler):
    """Handler of GET /openapi.json."""

    def get(self) -> None:
        """Answer the description, made once."""
        self.set_header("Content-Type", answers.JSON.decode())
        self.finish(self.surface.description)

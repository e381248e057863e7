"""OpenAPI description of the routes under /vault."""

from __future__ import annotations

from typing import Any, Final

from surfaces.http.openapi import (
    INTEGER,
    NULL_OR_STRING,
    OPERATIONS,
    STRING,
    Json,
    in_query,
    json_of,
    object_of,
)
from surfaces.http.vaults import ALL, ONE, STORE_PATHS, VAULT_PATHS

_BOOLEAN: Final[Json] = {"type": "boolean"}
_ANY: Final[Json] = {"description": "a value of the language"}
_UNTIL: Final[Json] = {"type": ["string", "null"], "format": "date-time"}
_STATE: Final[Json] = {"sealed": _BOOLEAN, "until": _UNTIL}
_IN_PATH: Final = [
    {"name": name, "in": "path", "required": True, "schema": STRING, "description": text}
    for name, text in (("ns", "the namespace"), ("db", "the database"), ("vault", "the vault"))
]
_REFUSALS: Final = (401, 403, 409, 422, 423, 429)


def _does(summary: str, answer: Json, body: Json | None = None, **more: Any) -> Json:
    found: Json = {
        "summary": summary,
        "responses": {"200": {"description": "done", "content": json_of(answer)}},
        "refusals": _REFUSALS,
        **more,
    }
    if body is not None:
        found["requestBody"] = {"required": bool(body["required"]), "content": json_of(body)}
    return found


_SEALS: Final = {
    "unseal": (
        "Unseal for a limited time",
        object_of({"sealed": _BOOLEAN, "until": _UNTIL}),
        object_of({"passphrase": STRING}),
    ),
    "seal": ("Seal", object_of({"sealed": _BOOLEAN}), None),
    "passphrase": (
        "Change the passphrase, or set the store's first",
        object_of({"changed": _BOOLEAN, "rewrapped": INTEGER}),
        object_of({"new": STRING}, {"old": NULL_OR_STRING, "rekey": _BOOLEAN}),
    ),
}

OPERATIONS["GET", ALL] = _does(
    "Seal state of the store and of the vaults that the caller sees",
    object_of(
        {
            "store": object_of({"set": _BOOLEAN, **_STATE}),
            "vaults": {
                "type": "array",
                "items": object_of(
                    {
                        "namespace": STRING,
                        "database": STRING,
                        "vault": STRING,
                        "own": _BOOLEAN,
                        **_STATE,
                        "records": INTEGER,
                    }
                ),
            },
        }
    ),
)
for _word, (_summary, _answer, _body) in _SEALS.items():
    OPERATIONS["POST", STORE_PATHS[_word]] = _does(f"{_summary}: the store", _answer, _body)
    OPERATIONS["POST", VAULT_PATHS[_word]] = _does(
        f"{_summary}: a vault with a passphrase of its own", _answer, _body, parameters=_IN_PATH
    )
OPERATIONS["GET", ONE] = _does(
    "Ids of a vault's records, in order",
    object_of({"ids": {"type": "array", "items": STRING}}),
    parameters=[
        *_IN_PATH,
        in_query("prefix", "prefix of the ids"),
        in_query("after", "return ids after this one"),
        in_query("limit", "0 to 1000; default 1000", type="integer"),
    ],
)
OPERATIONS["POST", VAULT_PATHS["reveal"]] = _does(
    "The value of a record; the access is recorded before the response",
    object_of({"id": STRING, "value": _ANY, "version": INTEGER, "at": {"description": "when"}}),
    object_of({"id": STRING}, {"version": INTEGER, "reason": NULL_OR_STRING}),
    parameters=_IN_PATH,
)
OPERATIONS["POST", VAULT_PATHS["write"]] = _does(
    "Write a record's next version",
    object_of({"written": _BOOLEAN, "version": INTEGER}),
    object_of(
        {"id": STRING, "value": _ANY},
        {"if": {"enum": ["absent"]}, "expect": INTEGER, "reason": NULL_OR_STRING},
    ),
    parameters=_IN_PATH,
)
OPERATIONS["POST", VAULT_PATHS["erase"]] = _does(
    "Erase a record with all of its versions",
    object_of({"erased": _BOOLEAN}),
    object_of({"id": STRING}, {"reason": NULL_OR_STRING}),
    parameters=_IN_PATH,
)

"""Table of the routes under /vault."""

from __future__ import annotations

from typing import Final

from protocol import limits
from surfaces.http import vaults
from surfaces.http.exchange import Route
from surfaces.http.operation import (
    ANY,
    BOOLEAN,
    INTEGER,
    NULL_OR_STRING,
    STRING,
    Json,
    Operation,
    RouteParameter,
    answers,
    object_of,
    parameter,
)

_STATE: Final[Json] = {
    "sealed": BOOLEAN,
    "until": {"type": ["string", "null"], "format": "date-time"},
}


def _route(
    method: str,
    path: str,
    summary: str,
    answer: Json,
    *query: RouteParameter,
    body: Json | None = None,
    body_max: int = limits.SMALL_BODY_BYTES,
) -> Route:
    return Route(
        method, path, lean=vaults.VaultDelegate, credential="required",
        accepts=("application/json",) if body else (), body_max=body_max, query=query, body=body,
        operation=Operation(summary, answers("done", answer), (403, 409, 422, 423, 429)),
    )  # fmt: skip


def _seals(paths: dict[str, str], of: str) -> tuple[Route, ...]:
    """Return the routes of seal and passphrase, of the store or a vault."""
    return (
        _route(
            "POST", paths["unseal"], f"Unseal for a limited time: {of}", object_of(_STATE),
            body=object_of({"passphrase": STRING}),
        ),
        _route("POST", paths["seal"], f"Seal: {of}", object_of({"sealed": BOOLEAN})),
        _route(
            "POST", paths["passphrase"], f"Change the passphrase, or set the store's first: {of}",
            object_of({"changed": BOOLEAN, "rewrapped": INTEGER}),
            body=object_of({"new": STRING}, {"old": NULL_OR_STRING, "rekey": BOOLEAN}),
        ),
    )  # fmt: skip


ROUTES: Final = (
    _route(
        "GET", vaults.ALL, "Seal state of the store and of the vaults that the caller sees",
        object_of(
            {
                "store": object_of({"set": BOOLEAN, **_STATE}),
                "vaults": {
                    "type": "array",
                    "items": object_of(
                        {
                            "namespace": STRING,
                            "database": STRING,
                            "vault": STRING,
                            "own": BOOLEAN,
                            **_STATE,
                            "records": INTEGER,
                        }
                    ),
                },
            }
        ),
    ),
    *_seals(vaults.STORE_PATHS, "the store"),
    _route(
        "GET", vaults.ONE, "Ids of a vault's records, in order",
        object_of({"ids": {"type": "array", "items": STRING}}),
        parameter("prefix", "prefix of the ids"),
        parameter("after", "return ids after this one"),
        parameter("limit", "0 to 1000; default 1000", type="integer"),
    ),
    *_seals(vaults.VAULT_PATHS, "a vault with a passphrase of its own"),
    _route(
        "POST", vaults.VAULT_PATHS["reveal"],
        "The value of a record; the access is recorded before the response",
        object_of({"id": STRING, "value": ANY, "version": INTEGER, "at": {"description": "when"}}),
        body=object_of({"id": STRING}, {"version": INTEGER, "reason": NULL_OR_STRING}),
    ),
    _route(
        "POST", vaults.VAULT_PATHS["write"], "Write a record's next version",
        object_of({"written": BOOLEAN, "version": INTEGER}),
        body=object_of(
            {"id": STRING, "value": ANY},
            {"if": {"enum": ["absent"]}, "expect": INTEGER, "reason": NULL_OR_STRING},
        ),
        body_max=vaults.BODY_MAX,
    ),
    _route(
        "POST", vaults.VAULT_PATHS["erase"], "Erase a record with all of its versions",
        object_of({"erased": BOOLEAN}),
        body=object_of({"id": STRING}, {"reason": NULL_OR_STRING}),
    ),
)  # fmt: skip

"""No password and no token reaches the data directory; of passwords only hashes do."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from hashlib import sha256
from pathlib import Path

from tests.nodes import OWNER, PASSWORD
from tests.surfaces.served import served

DECLARED = "canary declared 4f1"
CHANGED = "canary changed 9b2"
OWN = "canary of its own 7c3"
WRONG = "canary that is wrong 5d4"
WRITTEN = "canary written as data 6e5"


def held(directory: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


async def test_what_was_a_secret_is_not_in_the_directory(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with served(store) as node:
        raw = await node.raw()
        owner = f"Bearer {await node.token(raw, OWNER.user, PASSWORD)}"
        text = (
            f"DEFINE USER ana ROLE member PASSWORD '{DECLARED}'; ALTER USER ana SET PASSWORD"
            f" '{CHANGED}'; DEFINE TABLE t; CREATE t:1 SET text = '{WRITTEN}'"
        )
        fields = {"store_namespace": "shop", "store_database": "main"}
        assert (await raw.run(text, owner, **fields)).status == 200
        text = "DEFINE REPLICA n1 PEER 'n1:1'; CREATE JOIN TOKEN"
        answer = await raw.run(text, owner, **fields)
        joins = json.loads(answer.body)["results"][1]["value"]["token"].removeprefix("n1.")
        token = await node.token(raw, "ana", CHANGED)
        body = json.dumps({"old": CHANGED, "new": OWN}).encode()
        bearer = f"Bearer {token}"
        changed = await raw.ask(
            "POST", "/password", body, content_type="application/json", authorization=bearer
        )
        assert changed.status == 204
        wrong = json.dumps({"user": "ana", "password": WRONG}).encode()
        refused = await raw.ask("POST", "/session", wrong, content_type="application/json")
        assert refused.status == 401
        peer = await node.peer(user="ana", password=OWN)
        assert (await peer.run(1, "RETURN 1")).body is not None
        while_it_runs = held(store)
    for found in (while_it_runs, held(store)):
        assert WRITTEN.encode() in found, "what is written as data is kept as it is"
        assert b"$argon2id$" in found
        secrets = [
            word.encode() for word in (PASSWORD, DECLARED, CHANGED, OWN, WRONG, token, joins)
        ]
        digest = sha256(token.encode()).digest()
        secrets += [urlsafe_b64decode(token + "="), digest, digest.hex().encode()]
        secrets += [urlsafe_b64decode(joins + "=")]
        assert not [secret for secret in secrets if secret in found]

"""Users of every role and their grants, written into the store without statements."""

from __future__ import annotations

from collections.abc import Sequence

from actors.commits.committer import NODE
from actors.node import Node
from actors.securables import securable_of
from protocol.requests import Caller
from protocol.rights import Securable, Verb
from storage.catalog import places, spaces, tables, users
from storage.catalog.places import Database
from storage.topics import topics
from storage.vaults import vaults

PASSWORD = "correct horse battery"


async def declare(
    node: Node, name: str, role: str, space: str | None = None, password: str | None = None
) -> Caller:
    """A user of a role, and the caller it is. Without `password` nobody can sign in as it."""
    passhash = "*" if password is None else await node.passwords.hash(password)
    with node.committer.begin_transaction() as tx:
        present = users.find(tx, name)
        if present is None:
            users.define(tx, name, role, passhash, space=space)
        else:
            users.alter(tx, present, role=role)
        ticket = node.committer.commit(tx, NODE)
    await node.committer.released(ticket)
    return Caller(name, role, space, None, "http", "127.0.0.1:50001")


class Granted:
    """Gives and takes rights of users by their names, past what GRANT would allow."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def grant(self, name: str, verb: Verb, *path: str, kind: str = "table") -> None:
        """One verb on a place, or on what is called `path` in a database."""
        securable = self._securable(path, kind)
        with self._node.committer.begin_transaction() as tx:
            users.grant(tx, users.get(tx, name), frozenset({verb}), securable)
            self._node.committer.commit(tx, NODE)

    def revoke(self, name: str) -> None:
        """All of them."""
        with self._node.committer.begin_transaction() as tx:
            user = users.get(tx, name)
            users.forget(tx, user, {each.securable for each in user.grants})
            self._node.committer.commit(tx, NODE)

    def _securable(self, path: Sequence[str], kind: str) -> Securable:
        with self._node.committer.begin_transaction() as tx:
            place = places.namespace(tx, path[0])
            if len(path) == 1:
                return securable_of(place)
            database: Database = places.database(tx, place, path[1])
            if len(path) == 2:
                return securable_of(database)
            if kind == "table":
                return securable_of(tables.table(tx, database, path[2]))
            if kind == "space":
                return securable_of(spaces.space(tx, database, path[2]))
            if kind == "vault":
                vault = vaults.find(tx, database, path[2])
                assert vault is not None, path
                return securable_of(vault)
            return securable_of(topics.topic(tx, database, path[2]))

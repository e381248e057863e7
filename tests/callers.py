"""Users of every role, written into the store as the statements of this version can't, and grants
that a test gives them."""

from __future__ import annotations

from collections.abc import Sequence

from actors.commits import NODE
from actors.node import Node
from actors.rights import Grant, noun_of
from protocol.requests import Caller
from protocol.rights import Noun, Verb
from storage import catalog, topics, users
from storage.catalog import Database
from storage.transactions import Transaction
from storage.users import User

PASSWORD = "correct horse battery"


async def declare(
    node: Node, name: str, role: str, space: str | None = None, password: str | None = None
) -> Caller:
    """A user of a role, and the caller it is. Without `password` nobody can sign in as it."""
    passhash = "*" if password is None else await node.passwords.hash(password)
    with node.committer.begin() as tx:
        present = users.find(tx, name)
        if present is None:
            users.define(tx, name, role, passhash, space=space)
        else:
            users.alter(tx, present, role=role)
        promise = node.committer.commit(tx, NODE)
    await node.committer.released(promise)
    return Caller(name, role, space, None, "http", "127.0.0.1:50001")


class Granted:
    """Grants of users, by their names; stands in for what a store will keep of them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._grants: dict[str, tuple[Grant, ...]] = {}
        node.rights.grants = self.of

    def of(self, _tx: Transaction, user: User) -> Sequence[Grant]:
        return self._grants.get(user.name, ())

    def grant(self, name: str, verb: Verb, *path: str, kind: str = "table") -> None:
        """One verb on a place, or on what is called `path` in a database."""
        noun = self._noun(path, kind)
        self._grants[name] = (*self._grants.get(name, ()), Grant(verb, noun))

    def revoke(self, name: str) -> None:
        """All of them."""
        self._grants.pop(name, None)

    def _noun(self, path: Sequence[str], kind: str) -> Noun:
        with self._node.committer.begin() as tx:
            place = catalog.namespace(tx, path[0])
            if len(path) == 1:
                return noun_of(place)
            database: Database = catalog.database(tx, place, path[1])
            if len(path) == 2:
                return noun_of(database)
            if kind == "table":
                return noun_of(catalog.table(tx, database, path[2]))
            if kind == "space":
                return noun_of(catalog.space(tx, database, path[2]))
            return noun_of(topics.topic(tx, database, path[2]))

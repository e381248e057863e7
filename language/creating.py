"""Validation of restored scripts: a script that is restored beside existing data may only create.

It creates namespaces, databases and their objects, and fills them with literals. Nothing is read or
computed, so no script reads with the privileges of the restoring user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from language import tree
from protocol.errors import Refusal, RestoreRefused
from protocol.values import Tick, check_record_id, paced

Names = tuple[str, str]
"""Names of a namespace and a database in it."""

STEP: Final = 1_024
"""Number of AST nodes visited between two ticks."""


class NotCreating(Exception):
    """Reason for rejecting a statement."""


class RestoreScriptValidator:
    """Validator of one script, statement by statement. Tracks the objects that the script has
    created.

    :param tick: called periodically while a long statement is checked
    :param only: databases that the script may create; None: any
    """

    def __init__(self, tick: Tick, only: frozenset[Names] | None = None) -> None:
        self._tick = tick
        self._only = only
        self.namespaces: set[str] = set()
        """Namespaces that the script defines."""
        self.databases: set[Names] = set()
        self._place: Names | None = None
        self._made: set[tuple[str, Names, str]] = set()
        """Tables, topics and spaces, each with its database."""

    def take(self, statement: tree.Statement) -> None:
        """Check the next statement. :raises NotCreating: it is not allowed"""
        check = _CHECKS.get(type(statement))
        if check is None:
            raise NotCreating("it does not create anything")
        check(self, statement)

    # --- places -----------------------------------------------------------------------------------

    def namespace(self, node: tree.DefineNamespace) -> None:
        """DEFINE NAMESPACE."""
        _keeps(node)
        self.namespaces.add(node.name)

    def database(self, node: tree.DefineDatabase) -> None:
        """DEFINE DATABASE."""
        _keeps(node)
        if node.namespace is None:
            raise NotCreating("it does not name the namespace")
        names = node.namespace, node.name
        if self._only is not None and names not in self._only:
            raise NotCreating("that database was not in the checked script")
        self.databases.add(names)

    def use(self, node: tree.Use) -> None:
        """USE."""
        names = (node.namespace or "", node.database or "")
        if names not in self.databases:
            raise NotCreating("the script did not create that database")
        self._place = names

    # --- objects of a database --------------------------------------------------------------------

    def _here(self) -> Names:
        if self._place is None:
            raise NotCreating("no database created by the script is in use")
        return self._place

    def makes(self, kind: str, name: str) -> None:
        """Record the definition of a table, topic or space."""
        self._made.add((kind, self._here(), name))

    def has(self, kind: str, name: str) -> None:
        """Check a use of a table, topic or space. :raises NotCreating: the script has not defined
        it"""
        if (kind, self._here(), name) not in self._made:
            raise NotCreating(f"the script did not create the {kind} {name}")

    def define_table(self, node: tree.DefineTable) -> None:
        """DEFINE TABLE."""
        self.makes("table", node.name)
        if node.topic is not None:
            self.has("topic", node.topic)

    def define_function(self, node: tree.DefineFunction | tree.DefineAnalyzer) -> None:
        """DEFINE FUNCTION, DEFINE ANALYZER."""
        self._here()

    def define_group(self, node: tree.DefineGroup) -> None:
        """DEFINE GROUP."""
        self.has("topic", node.topic)
        if node.dead_letter is not None:
            self.has("topic", node.dead_letter)
        self._position(node.position)

    def define_reader(self, node: tree.DefineReader) -> None:
        """DEFINE READER."""
        self.has("topic", node.topic)
        self._position(node.position)

    # --- data -------------------------------------------------------------------------------------

    def create(self, node: tree.Create) -> None:
        """CREATE t:id."""
        target = node.target
        if not isinstance(target, tree.ExpressionTarget):
            raise NotCreating("it does not name the record's id")
        address = target.expression
        if not isinstance(address, tree.RecordLiteral):
            raise NotCreating("its target is not a table:id")
        self.has("table", address.table)
        self._literal(address)
        _quiet(node)
        match node.data:
            case None:
                pass
            case tree.Content():
                self._literal(node.data.value)
            case tree.Set() if all(one.operator == "=" for one in node.data.assignments):
                for one in node.data.assignments:
                    self._literal(one.value)
            case _:
                raise NotCreating("it does more than set the record's fields")

    def insert(self, node: tree.Insert) -> None:
        """INSERT."""
        self.has("table", node.table)
        _quiet(node)
        if node.ignore or node.on_duplicate is not None or node.columns:
            raise NotCreating("it has COLUMNS, IGNORE or ON DUPLICATE")
        self._literal(node.rows)
        for row in paced(_rows(node.rows), self._tick):
            if not _has_id(row):
                raise NotCreating("it does not name the id of each record")

    def publish(self, node: tree.Publish) -> None:
        """PUBLISH."""
        self.has("topic", node.topic)
        if node.expect is not None:
            raise NotCreating("it has EXPECT")
        for part in (node.value, node.key, node.id, node.headers, node.delay, node.at_time):
            self._literal(part)

    def set_key(self, node: tree.SetKey) -> None:
        """SET."""
        self.has("space", node.space)
        if node.keep or node.when is not None:
            raise NotCreating("it depends on the key's present value")
        for part in (node.key, node.value, node.expire, node.expire_at):
            self._literal(part)

    # --- literals ---------------------------------------------------------------------------------

    def _position(self, position: tree.Position | None) -> None:
        if position is not None:
            self._literal(position.value)

    def _literal(self, node: Any) -> None:
        """Check that an expression is a literal. :raises NotCreating: it is not"""
        pending, seen = [node], 0
        while pending:
            one = pending.pop()
            seen += 1
            if seen % STEP == 0:
                self._tick()
            match one:
                case None | tree.Constant():
                    pass
                case tree.Array():
                    pending += one.items
                case tree.Object():
                    pending += (value for _, value in one.fields)
                case tree.RecordLiteral():
                    pending.append(one.id)
                    _identity(one.id)
                case _:
                    raise NotCreating("it has a value that is not a literal")


_CHECKS: Final[dict[type, Callable[[RestoreScriptValidator, Any], None]]] = {
    tree.DefineNamespace: RestoreScriptValidator.namespace,
    tree.DefineDatabase: RestoreScriptValidator.database,
    tree.Use: RestoreScriptValidator.use,
    tree.DefineTable: RestoreScriptValidator.define_table,
    tree.DefineField: lambda script, node: script.has("table", node.table),
    tree.DefineIndex: lambda script, node: script.has("table", node.table),
    tree.DefineFunction: RestoreScriptValidator.define_function,
    tree.DefineAnalyzer: RestoreScriptValidator.define_function,
    tree.DefineTopic: lambda script, node: script.makes("topic", node.name),
    tree.DefineReader: RestoreScriptValidator.define_reader,
    tree.DefineGroup: RestoreScriptValidator.define_group,
    tree.DefineSpace: lambda script, node: script.makes("space", node.name),
    tree.Create: RestoreScriptValidator.create,
    tree.Insert: RestoreScriptValidator.insert,
    tree.Publish: RestoreScriptValidator.publish,
    tree.SetKey: RestoreScriptValidator.set_key,
}
"""Allowed statements and their checks. Any other statement is rejected."""


def _keeps(node: tree.DefineNamespace | tree.DefineDatabase) -> None:
    if node.exists is tree.Exists.OVERWRITE:
        raise NotCreating("it has OVERWRITE")


def _quiet(node: tree.Create | tree.Insert) -> None:
    """Reject RETURN (other than NONE) and TIMEOUT: a restore returns no results."""
    if node.returning is not None and node.returning.kind != "NONE":
        raise NotCreating("it returns a result")
    if node.timeout is not None:
        raise NotCreating("it has a TIMEOUT")


def _identity(node: tree.Expression) -> None:
    if isinstance(node, tree.Constant):
        try:
            check_record_id(node.value)
        except Refusal as refusal:
            raise NotCreating(refusal.message) from refusal


def _rows(node: tree.Expression) -> tuple[Any, ...]:
    if isinstance(node, tree.Array):
        return node.items
    if isinstance(node, tree.Constant) and isinstance(node.value, list):
        return tuple(map(tree.Constant, node.value))
    return (node,)


def _has_id(row: Any) -> bool:
    if isinstance(row, tree.Object):
        return any(name == "id" for name, _ in row.fields)
    return isinstance(row, tree.Constant) and isinstance(row.value, dict) and "id" in row.value


def refused(why: NotCreating, words: str) -> RestoreRefused:
    """Return the error for a rejected statement. :param words: its first words"""
    return RestoreRefused(
        f"cannot restore a script with {words} …: {why}; a restored script may only create",
        found=words,
    )

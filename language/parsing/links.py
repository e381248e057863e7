"""Reverse links: `<-order.customer` selects the records of a table that link to the current record.

It is syntax for a subquery over an index. Only the parser, the printer and the check that such an
index exists treat it differently from other subqueries.
"""

from __future__ import annotations

from typing import Final

from language import tree
from language.parsing.literals import LiteralParser
from protocol import limits
from protocol.errors import BadRequest, TooLarge
from protocol.paths import Path

GRAMMAR: Final = """
link_back = "<-" ^ name "." label {"." label}
"""
_HEIGHT: Final = 8
"""Number of nodes from the root of the subquery to its deepest leaf, without its path."""
_NO_SUBQUERY: Final = (
    "a closure can't contain a SELECT: bind its rows with LET before, or use a"
    " SELECT instead of the closure"
)
_SELF: Final = tree.Attribute(tree.Parameter("parent"), "id")
_IS_RECORD: Final = tree.Binary("=", tree.Call("type::of", (_SELF,)), tree.Constant("record"))
"""Condition that the row is a record. Without it, records whose link is absent would match a row
without an id."""


class LinkParser(LiteralParser):
    """Parser of reverse links."""

    closures = 0
    """Number of enclosing closures."""

    def check_no_closure(self) -> None:
        """Reject a subquery inside a closure. :raises BadRequest: the cursor is in a closure"""
        if self.closures:
            self.refuse(BadRequest, _NO_SUBQUERY)

    def begins_link_back(self, ahead: int = 0) -> bool:
        """True if `<-` and a name follow, where a value is expected."""
        if not (self.is_mark("<", ahead) and self.is_mark("-", ahead + 1)):
            return False
        return self.adjoins(ahead + 1) and self.adjoins(ahead + 2)

    def link_back(self) -> tree.Subquery:
        """Parse `<-table.field`. The field may be a path of names."""
        self.check_no_closure()
        at = self.at
        self.i += 2
        table = self.name("table")
        self.expect_mark(".", "`.` and the field of that table that holds the link")
        path = [self.label("field name")]
        while self.is_mark(".") and not self.is_mark("*", 1):
            self.i += 1
            path.append(self.label("field name"))
            if len(path) > limits.DEPTH:
                self.refuse(TooLarge, f"a path has at most {limits.DEPTH} steps")
        self.height = _HEIGHT + len(path)
        return tree.Subquery(linking(table, tuple(path), at))


def linking(table: str, path: Path, at: int = 0) -> tree.Select:
    """Return the SELECT of the ids of a table's records that link to the enclosing record.

    The link is at the given path, or among the items of an array there.
    """
    first, *rest = map(str, path)
    field: tree.Expression = tree.Name(first)
    for name in rest:
        field = tree.Attribute(field, name)
    is_array = tree.Binary("=", tree.Call("type::of", (field,)), tree.Constant("array"))
    among = tree.Binary("AND", is_array, tree.Binary("CONTAINS", field, _SELF))
    found = tree.Binary("OR", tree.Binary("=", field, _SELF), among)
    return tree.Select(
        value=True,
        everything=False,
        columns=(tree.Column(tree.Name("id"), None),),
        omit=(),
        sources=(tree.TableTarget(table, at),),
        where=tree.Binary("AND", _IS_RECORD, found),
        back=path,
        at=at,
    )

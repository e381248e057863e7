"""`<-order.customer`: the records of a table that link to the one at hand.

It is short for a subquery over an index, and is a subquery for everybody but the parser, the
printer and whoever sees to it that there is such an index.
"""

from __future__ import annotations

from typing import Final

from language import tree
from language.parsing.literals import Literals
from protocol import limits
from protocol.errors import BadRequest, TooLarge
from protocol.paths import Path

GRAMMAR: Final = """
link_back = "<-" ^ name "." label {"." label}
"""
_HEIGHT: Final = 8
"""Nodes from the root of the subquery to its deepest leaf, its path aside."""
_NO_SUBQUERY: Final = (
    "a closure holds no SELECT: LET gives its rows a name before, or a SELECT takes the closure's"
    " place"
)
_SELF: Final = tree.Attribute(tree.Parameter("parent"), "id")
_IS_RECORD: Final = tree.Binary("=", tree.Call("type::of", (_SELF,)), tree.Constant("record"))
"""A row that is no record is linked to by nobody, least of all by those that have no link."""


class Links(Literals):
    """Adds links read backwards to a cursor."""

    closures = 0
    """How many closures are around it."""

    def check_no_closure(self) -> None:
        """:raises BadRequest: a subquery is at hand in a closure"""
        if self.closures:
            self.refuse(BadRequest, _NO_SUBQUERY)

    def begins_link_back(self, ahead: int = 0) -> bool:
        """Whether `<-` and a name is at hand, where a value is wanted."""
        if not (self.is_mark("<", ahead) and self.is_mark("-", ahead + 1)):
            return False
        return self.adjoins(ahead + 1) and self.adjoins(ahead + 2)

    def link_back(self) -> tree.Subquery:
        """`<-table.field`; a field may be a path of names."""
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
    """The ids of the records of a table that have the record around it at a path, or among the
    items of an array there."""
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

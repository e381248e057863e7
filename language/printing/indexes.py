"""Printer of index statements and EXPLAIN."""

from __future__ import annotations

from language import tree
from language.keywords import quote
from language.printing.clauses import join, on_table, paths, text, timeout
from language.printing.expressions import print_expression
from language.printing.statements import STATEMENTS, print_statement


def _define_index(node: tree.DefineIndex) -> str:
    return join(
        "DEFINE INDEX",
        node.exists.value,
        f"{quote(node.name)} ON {quote(node.table)}",
        paths("FIELDS", node.fields),
        "UNIQUE" if node.unique else "",
        "" if node.text is None else _full_text(node.text),
        "" if node.vector is None else _vector(node.vector),
        text("COMMENT", node.comment),
        _built(node),
    )


def _full_text(node: tree.FullText) -> str:
    boosts = ", ".join(f"{path} {factor!r}" for path, factor in node.boosts)
    scoring = (node.saturation, node.length)
    return join(
        f"FULLTEXT ANALYZER {quote(node.analyzer)}",
        "" if scoring == _SCORING else f"BM25 ({scoring[0]!r}, {scoring[1]!r})",
        f"BOOST {boosts}" if boosts else "",
    )


def _vector(node: tree.VectorIndex) -> str:
    return join(
        f"VECTOR DIMENSION {node.dimension}",
        "" if node.distance == _DEFAULT_VECTORS.distance else f"DISTANCE {node.distance}",
        "" if node.type == _DEFAULT_VECTORS.type else f"TYPE {node.type}",
        "" if node.recall == _DEFAULT_VECTORS.recall else f"RECALL {node.recall!r}",
    )


_DEFAULT_VECTORS = tree.VectorIndex(1)
_SCORING = (1.2, 0.75)
"""Defaults of BM25."""


def _built(node: tree.DefineIndex | tree.RebuildIndex) -> str:
    return join("WAIT", timeout(node)) if node.wait else ""


def _rebuild(node: tree.RebuildIndex) -> str:
    return join(
        on_table("REBUILD INDEX", node.name, node.table),
        "" if node.over is None else join("MEASURE", _over(node.over)),
        _built(node),
    )


def _over(over: tree.MeasureOver) -> str:
    return join(
        "" if over.queries == _DEFAULT.queries else f"QUERIES {over.queries}",
        "" if over.vectors is None else f"WITH {print_expression(over.vectors)}",
        "" if over.k == _DEFAULT.k else f"K {over.k}",
        "" if over.probes is None else f"PROBES {over.probes}",
        "" if over.where is None else f"WHERE {print_expression(over.where)}",
    )


_DEFAULT = tree.MeasureOver()


def _explain(node: tree.Explain) -> str:
    return join("EXPLAIN", "ANALYZE" if node.analyze else "", print_statement(node.statement))


STATEMENTS.update(
    {
        tree.DefineIndex: _define_index,
        tree.DropIndex: lambda node: join(
            on_table("DROP INDEX", node.name, node.table), text("REASON", node.reason)
        ),
        tree.RebuildIndex: _rebuild,
        tree.CheckIndex: lambda node: on_table("CHECK INDEX", node.name, node.table),
        tree.MeasureIndex: lambda node: join(
            on_table("MEASURE INDEX", node.name, node.table), _over(node.over)
        ),
        tree.Explain: _explain,
    }
)

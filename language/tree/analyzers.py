"""AST of analyzers for full-text search."""

from __future__ import annotations

from dataclasses import dataclass, field

from language.tree.places import Exists


@dataclass(frozen=True, slots=True)
class AnalyzerFilter:
    """A filter. `arguments`: texts of words or literals, as they are printed."""

    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DefineAnalyzer:
    """`DEFINE ANALYZER`, with at least one tokenizer."""

    name: str
    tokenizers: tuple[str, ...]
    filters: tuple[AnalyzerFilter, ...] = ()
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropAnalyzer:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)

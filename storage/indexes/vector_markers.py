"""Fresh markers of VECTOR indexes, and the check of the vectors that are written."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any, Final

from protocol.errors import TypeRefused
from protocol.paths import path_text
from protocol.values import NONE, type_name
from storage.indexes.fresh_markers import FreshMarkers, SegmentedIndex
from storage.indexes.vector_options import VectorOptions

_NUMBERS: Final = frozenset({int, float, Decimal})


class VectorMarkers(FreshMarkers):
    """Markers of one VECTOR index."""

    def __init__(
        self, index: SegmentedIndex, options: VectorOptions, heads: tuple[str, ...]
    ) -> None:
        super().__init__(index, heads)
        self._options = options

    def content(self, row: list[Any]) -> Any:
        """Return the value of the field. :param row: values from `IndexedFields`"""
        return next(self.values(row))

    def has_content(self, content: Any) -> bool:
        """True if there is a value: absent, NONE and NULL stay outside."""
        return content is not None and content is not NONE

    def check(self, content: Any) -> None:
        """Check a value that is written. :raises TypeRefused: it is no vector of the index"""
        found = unfit(content, self._options)
        if found is not None:
            wanted, field = wanted_of(self._options), path_text(self.index.paths[0])
            raise TypeRefused(
                f"field {field} of table {self.index.table} takes an {wanted}, by its index"
                f" {self.index.name}, not {found}",
                table=self.index.table,
                field=field,
                wanted=wanted,
                found=found,
            )


def wanted_of(options: VectorOptions) -> str:
    """Return the description of the vectors that an index takes."""
    return f"array of {options.dimension} numbers"


def unfit(value: Any, options: VectorOptions) -> str | None:
    """Return the description of a value that is no vector with these options; None: it is one."""
    if type(value) is not list:
        return type_name(value)
    if len(value) != options.dimension:
        return f"array of {len(value)}"
    if not set(map(type, value)) <= _NUMBERS:
        other = next(one for one in value if type(one) not in _NUMBERS)
        return f"array with {type_name(other)}"
    if not are_finite(value):
        return "array with NaN, or a number out of the range of floats"
    if options.distance == "COSINE" and not any(map(float, value)):
        return "vector of length zero"
    return None


def are_finite(numbers: list[Any]) -> bool:
    """True if all numbers are finite floats."""
    try:
        # The sum of finite numbers may be infinite: then each is looked at.
        return isfinite(sum(map(float, numbers))) or all(map(isfinite, map(float, numbers)))
    except OverflowError:
        return False

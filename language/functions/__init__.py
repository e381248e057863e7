"""The functions of the language: `TABLE` holds them all, by name."""

from language.functions import (  # noqa: F401  (each fills the table)
    aggregates,
    arrays,
    digests,
    numbers,
    objects,
    randoms,
    records,
    strings,
    times,
    types,
    vectors,
)
from language.functions.table import TABLE, Function, Parameter

__all__ = ["TABLE", "Function", "Parameter"]

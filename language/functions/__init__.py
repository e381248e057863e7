"""The functions of the language: `TABLE` holds them all, by name."""

from importlib import import_module

from language.functions.table import TABLE, Function, Parameter

for _module in (
    "aggregates", "arrays", "digests", "numbers", "objects", "randoms", "records", "strings",
    "times", "types", "vectors",
):  # fmt: skip
    import_module(f"{__name__}.{_module}")  # each enters its functions into the table

__all__ = ["TABLE", "Function", "Parameter"]

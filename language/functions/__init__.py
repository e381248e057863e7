"""Built-in functions of the language; `TABLE` maps their names."""

from importlib import import_module

from language.functions.table import TABLE, Function, Parameter

for _module in (
    "aggregates", "arrays", "digests", "numbers", "objects", "randoms", "records", "search",
    "strings", "times", "types", "vectors",
):  # fmt: skip
    import_module(f"{__name__}.{_module}")  # registers its functions

__all__ = ["TABLE", "Function", "Parameter"]

"""Layers of storage: a package imports lower ones only, types included, and of each its public
modules."""

from __future__ import annotations

import ast
import importlib

import pytest

from tests.architecture.sources import Source, files

LAYERS = (
    ("faults",),
    ("formats",),
    ("files",),
    ("engine", "log", "columns"),
    ("txn",),
    ("indexes",),
    ("catalog", "search"),
    ("records", "keyspace", "topics", "vaults", "audit"),
    ("backups",),
)
"""Packages of storage from the lowest up. None imports another of its own layer."""

LAYER = {package: at for at, packages in enumerate(LAYERS) for package in packages}
MODULES = {source.path.removesuffix(".py").replace("/", ".") for source in files("storage")}


def targets(source: Source) -> list[tuple[int, str]]:
    """Modules of storage that a file imports, with the line."""
    found = []
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("storage"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = inner in MODULES or f"{inner}.__init__" in MODULES
                found.append((node.lineno, inner if is_module else str(node.module)))
        elif isinstance(node, ast.Import):
            found += [(node.lineno, a.name) for a in node.names if a.name.startswith("storage.")]
    return found


def violations(source: Source) -> list[str]:
    """Imports of a file that go up, sideways, or to a module that is not public."""
    package = source.path.rpartition("/")[0].replace("/", ".")
    found = []
    for line, target in targets(source):
        home, _, module = target.rpartition(".")
        if home == "storage" and f"{target}.__init__" in MODULES:
            found.append(f"{source.path}:{line} imports a package, {target}, not a module of it")
            continue
        if home not in ("storage", package) and module not in importlib.import_module(home).PUBLIC:
            found.append(f"{source.path}:{line} imports {target}, which is not public")
        if source.room != "storage" or source.path.count("/") == 1:
            continue
        mine, other = source.path.split("/")[1], target.split(".")[1]
        if mine != other and LAYER[other] >= LAYER[mine]:
            found.append(f"{source.path}:{line} imports {target}, of no lower layer")
    return found


@pytest.mark.parametrize("room", ["storage", "actors", "surfaces"])
def test_packages_import_lower_ones_only(room: str) -> None:
    found = [line for source in files(room) for line in violations(source)]
    assert not found, "\n".join(found)


HANDS_ON = {"actors/runtime/__init__.py", "actors/spaces/__init__.py"}
"""Packages that hand names of their modules on: each is one module to the rest of the node."""


def test_a_package_imports_nothing_itself() -> None:
    found = [
        source.path
        for source in files("storage", "actors")
        if source.path.endswith("__init__.py") and source.path not in HANDS_ON
        for node in source.tree.body
        if not isinstance(node, (ast.Expr, ast.Assign))
    ]
    assert not found, "\n".join(found)


def test_nothing_is_public_without_a_user() -> None:
    used = {
        target
        for source in files("storage", "actors", "surfaces", "bench")
        for _, target in targets(source)
        if target.rpartition(".")[0] != source.path.rpartition("/")[0].replace("/", ".")
    }
    found = [
        f"{home}.{module}"
        for home in sorted(m.removesuffix(".__init__") for m in MODULES if m.endswith(".__init__"))
        if home != "storage"
        for module in importlib.import_module(home).PUBLIC
        if f"{home}.{module}" not in used
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/formats/planted.py", "from storage.txn.ledger import Ledger"),
        ("storage/log/planted.py", "def f():\n    from storage.engine import engine"),
        ("storage/records/planted.py", "from storage.topics import topics"),
        ("storage/txn/planted.py", "from storage.log.tail_writer import cut"),
        ("actors/planted.py", "from storage import log"),
        ("actors/planted.py", "import storage.log.tail_writer"),
    ],
)
def test_a_planted_import_is_found(path: str, text: str) -> None:
    assert len(violations(Source(path, text))) == 1

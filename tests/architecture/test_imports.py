"""Who may import whom.

protocol <- language <- actors <- surfaces
protocol <- storage  <- actors
"""

from __future__ import annotations

import sys

import pytest

from tests.architecture.sources import ROOMS, Source, files, imported

MAY: dict[str, frozenset[str]] = {
    "protocol": frozenset({"msgpack", "msgspec"}),  # codecs of bytes in memory
    "language": frozenset(
        {
            "protocol",
            "msgspec",
            "re2",
            "sortedcontainers",
            "msgpack",
            "numpy",
            "Stemmer",
            "rapidfuzz",
        }
    ),
    "storage": frozenset(
        {
            "protocol",
            "msgpack",
            "msgspec",
            "rocksdict",
            "sortedcontainers",
            "cryptography",
            "numpy",
        }
    ),
    "actors": frozenset(
        {"protocol", "language", "storage", "pykka", "greenlet", "argon2", "structlog", "msgpack"}
    ),
    "surfaces": frozenset(
        {
            "protocol",
            "actors",
            "tornado",
            "httptools",
            "structlog",
            "rich",
            "prometheus_client",
            "cryptography",
            "msgpack",
            "OpenSSL",
        }
    ),
    "clients": frozenset({"storeclient", "msgpack", "setuptools"}),
    "examples": frozenset({"storeclient"}),
}
"""Beside the standard library and itself, what each room may import."""

CLIENTS = "surfaces/shell/"
"""A part of the surfaces that is no surface: clients of a node, which know the language and reach
the node as anybody else does, over the wire."""

IN_PLACE: dict[str, frozenset[str]] = {
    CLIENTS: frozenset(
        {"protocol", "language", "surfaces", "storeclient", "prompt_toolkit", "rich"}
    ),
}
"""What may be imported below a path, in the place of what its room may."""

WORLD = frozenset({"socket", "socketserver", "selectors", "threading", "multiprocessing", "queue"})
CLOCKS = frozenset({"time", "random", "secrets"})
DISK = frozenset({"os", "pathlib", "io", "shutil", "tempfile", "fcntl", "glob"})
LOOP = frozenset({"asyncio"})

NEVER: dict[str, frozenset[str]] = {
    "protocol": WORLD | CLOCKS | DISK | LOOP,
    "language": WORLD | CLOCKS | DISK | LOOP,
    "storage": WORLD | CLOCKS | DISK | LOOP,
    "actors": frozenset({"socket", "selectors"}) | CLOCKS | DISK,
    "surfaces": CLOCKS | DISK,
}
"""Of the standard library, what each room must not import: the world comes through the doors."""

EXCEPT: dict[str, frozenset[str]] = {
    "protocol/environment.py": frozenset({"asyncio"}),  # the types of the doors
    "storage/files/disk.py": DISK | frozenset({"time"}),  # the production door to files
    "actors/environment.py": WORLD | CLOCKS | DISK,  # the other production doors
    "actors/agreement.py": frozenset({"httptools"}),  # the one to etcd
    "actors/runtime/": frozenset({"threading", "queue"}),  # the only room that runs actors
    "surfaces/logs.py": frozenset({"os"}),  # writes to the descriptor of standard error
    "surfaces/http/console.py": frozenset({"pathlib"}),  # the console's files
    "surfaces/command/": DISK,  # the process: its arguments, files, signals and limits
    CLIENTS: DISK | CLOCKS,  # processes likewise, outside of every simulation
}


def violations(source: Source) -> list[str]:
    """Imports of a file that its room may not have."""
    room = source.room
    may = next(
        (names for path, names in IN_PLACE.items() if source.path.startswith(path)),
        MAY[room] | {room},
    )
    excepted: frozenset[str] = frozenset().union(
        *(names for path, names in EXCEPT.items() if source.path.startswith(path))
    )
    found = []
    for line, module in imported(source):
        top = module.partition(".")[0]
        if top == "__future__" or top in excepted:
            continue
        if top in sys.stdlib_module_names:
            allowed = top not in NEVER.get(room, frozenset())
        else:
            allowed = top in may
        if not allowed:
            found.append(f"{source.path}:{line} imports {module}")
    return found


@pytest.mark.parametrize("room", [*ROOMS, "clients", "examples"])
def test_room_imports_only_what_it_may(room: str) -> None:
    found = [line for source in files(room) for line in violations(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("protocol/planted.py", "import socket"),
        ("protocol/planted.py", "from language import parser"),
        ("language/planted.py", "def f():\n    from storage.log.log import Log"),
        ("language/planted.py", "from ..storage import log"),
        ("storage/planted.py", "import asyncio.events"),
        ("storage/planted.py", "import pykka"),
        ("storage/log/log.py", "import os"),
        ("actors/planted.py", "import tornado.web"),
        ("actors/planted.py", "from random import random"),
        ("surfaces/http/planted.py", "import storage.log.log"),
        ("surfaces/http/planted.py", "if TYPE_CHECKING:\n    from language.tree import Select"),
        ("surfaces/http/planted.py", "import time"),
        ("surfaces/http/planted.py", "from storeclient import Client"),
        ("surfaces/shell/planted.py", "from actors.node import Node"),
        ("surfaces/shell/planted.py", "import tornado.httpclient"),
        ("clients/python/storeclient/planted.py", "from protocol.errors import Refusal"),
        ("examples/shop/planted.py", "from tests.processes import serving"),
    ],
)
def test_planted_import_is_caught(path: str, text: str) -> None:
    assert len(violations(Source(path, text))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/files/disk.py", "import os, fcntl"),
        ("surfaces/command/main.py", "import os"),
        ("surfaces/shell/planted.py", "import os\nfrom language import lexer\nimport storeclient"),
        ("actors/planted.py", "import asyncio\nfrom storage import log\nimport pykka"),
        ("language/planted.py", "from . import lexer\nfrom protocol.values import NONE"),
    ],
)
def test_honest_import_is_not(path: str, text: str) -> None:
    assert violations(Source(path, text)) == []

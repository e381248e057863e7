"""Entry points of the container image: `serve` turns variables into flags, `check` asks the node.

In the image, a flag of a serving node that takes a value has a variable: `--keep-log` is
STORE_KEEP_LOG. So the settings in force stand on the command line of the node, where the health
check reads its addresses.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from protocol.errors import Refusal
from protocol.frames import FrameReader, MessageKind, encode
from surfaces.command import addresses, flags
from surfaces.command.addresses import Address, AddressRefused
from surfaces.command.flags import ParsedFlags, UsageRefused

PROGRAM: Final = "/usr/bin/storenode"
DIRECTORY: Final = "/data/store"
"""Below the volume, whose own top may belong to root or hold `lost+found`."""
CHECK_SECONDS: Final = 5.0
"""Time-out of each step of a health check."""
_OF_A_START: Final = ("--key-file", "--join")
"""Flags of a serving node that stand beside other forms, too."""
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Wildcard hosts, each with the loopback address that it includes."""
_HELLO: Final = encode(
    MessageKind.HELLO,
    0,
    {"magic": "STORE", "major": 1, "minor": [0, 0], "client": "storenode-check"},
)


def serve() -> int:
    """Replace this process by the node, or by `storenode` with the given words. Return 2 if the
    variables are not valid."""
    try:
        environment = with_password(os.environ)
    except UsageRefused as refused:
        print(f"storenode: {refused}", file=sys.stderr)
        return 2
    os.execve(PROGRAM, [PROGRAM, *command_line(sys.argv[1:], environment)], environment)


def check() -> int:
    """Ask the node of this container for its health. Return 0 if it is healthy."""
    commands = (path.read_bytes() for path in _command_lines())
    healthy = any(is_healthy(given) for given in map(served, commands) if given is not None)
    return 0 if healthy else 1


def command_line(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the words of the command: those given, or else a serving command of the variables.

    An empty variable gives no flag.
    """
    if words:
        return list(words)
    found = [DIRECTORY]
    for flag in flags.FLAGS:
        if flag.name in _OF_A_START or (flag.serving_only and flag.value is not None):
            value = environment.get(f"STORE_{flag.name[2:].replace('-', '_').upper()}")
            found += [flag.name, value] if value else []
    return found


def with_password(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables, with STORE_PASSWORD from the file that STORE_PASSWORD_FILE names.

    :raises UsageRefused: both are given, or the file can't be read
    """
    found = dict(environment)
    file = found.pop("STORE_PASSWORD_FILE", None)
    if not file:
        return found
    if found.get("STORE_PASSWORD"):
        raise UsageRefused("STORE_PASSWORD_FILE contradicts STORE_PASSWORD: give one of them")
    try:
        found["STORE_PASSWORD"] = Path(file).read_text().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "the file is not UTF-8"
        raise UsageRefused(f"STORE_PASSWORD_FILE: {file}: {reason}") from error
    return found


def _command_lines() -> Iterable[Path]:
    """Return the command lines of this container's processes, oldest first."""
    numbers = (path.name for path in Path("/proc").iterdir() if path.name.isdigit())
    return (Path("/proc", name, "cmdline") for name in sorted(numbers, key=int))


def served(line: bytes) -> ParsedFlags | None:
    """Return the flags of a serving node.

    :param line: command line of a process, each word with a null byte behind it
    """
    words = [os.fsdecode(word) for word in line.split(b"\0")[:-1]]
    if PROGRAM not in words:
        return None
    try:
        given = flags.read(words[words.index(PROGRAM) + 1 :])
    except UsageRefused:
        return None  # of another form: shell, import, export
    return given if "--http" in given or "--serve" in given else None


def is_healthy(given: ParsedFlags) -> bool:
    """Ask a node on its HTTP surface, or else over the wire. Return True if it answers that it is
    well."""
    tls = _any_certificate() if "--cert" in given else None
    over_http, over_wire = given.get("--http"), given.get("--serve")
    try:
        if over_http is not None:
            return _is_well(_reachable(over_http), tls)
        return over_wire is not None and _is_welcome(_reachable(over_wire), tls)
    except (AddressRefused, Refusal, OSError, http.client.HTTPException):
        return False


def _is_well(address: Address, tls: ssl.SSLContext | None) -> bool:
    """GET /health."""
    host, port = address.host, address.port
    with closing(
        http.client.HTTPSConnection(host, port, timeout=CHECK_SECONDS, context=tls)
        if tls is not None
        else http.client.HTTPConnection(host, port, timeout=CHECK_SECONDS)
    ) as connection:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK


def _is_welcome(address: Address, tls: ssl.SSLContext | None) -> bool:
    """Greet the node without a credential."""
    reader = FrameReader()
    with ExitStack() as opened:
        where = (address.host, address.port)
        connection = opened.enter_context(socket.create_connection(where, CHECK_SECONDS))
        if tls is not None:
            connection = opened.enter_context(tls.wrap_socket(connection))
        connection.sendall(_HELLO)
        while (message := reader.next()) is None:
            if not (received := connection.recv(4096)):
                return False
            reader.feed(received)
    return message.kind is MessageKind.WELCOME


def _reachable(text: str) -> Address:
    """Return the address at which this container reaches its own listener."""
    address = addresses.parse(text)
    return Address(_ANY.get(address.host, address.host), address.port)


def _any_certificate() -> ssl.SSLContext:
    """Return TLS to the own node, whose certificate has other names, and may be expired."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

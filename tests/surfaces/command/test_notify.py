"""What a service manager hears."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from surfaces.command.notify import READY, notify


@pytest.mark.parametrize("abstract", [False, True])
def test_state_reaches_the_socket(tmp_path: Path, abstract: bool) -> None:
    path = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path if abstract else path)
        assert notify({"NOTIFY_SOCKET": "@" + path if abstract else path}, READY)
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("where", ["", "relative", "/no/such/socket", "@nobody-listens"])
def test_no_manager_is_no_failure(where: str) -> None:
    assert not notify({"NOTIFY_SOCKET": where}, READY)
    assert not notify({}, READY)

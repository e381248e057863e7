"""`--join`: when the token is read, and what comes of one that is gone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from actors.cluster import bootstrap
from actors.environment import system_environment
from protocol import limits
from storage.files.joining_file import CopySource, JoiningDirectory
from surfaces.command.arguments import Invitation, Join
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened
from surfaces.command.joining import join
from tests.logbook import Logbook
from tests.processes import tree

NOBODY = CopySource("n1", ("127.0.0.1:1",), ("ab" * 32,))
"""Where nobody listens."""


def begun(path: Path, *, knows: bool) -> str:
    """A directory that is joining. :param knows: whether its token was redeemed"""
    environment = system_environment()
    with closing(
        JoiningDirectory.lock(str(path), environment.fs, environment.clock, environment.rng)
    ) as found:
        if knows:
            found.note(uuid4(), (NOBODY,))
    return str(path)


async def ended(directory: str, invitation: Invitation) -> str:
    with pytest.raises(NotOpened) as why:
        await join(Join(directory, invitation), Console(lambda _line: None, terminal=False))
    return str(why.value)


@pytest.fixture(params=["gone", "empty", "no token"])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Invitation:
    """What a unit file may go on naming."""
    file = tmp_path / "token"
    if request.param == "empty":
        file.touch()
    return Invitation(token="nonsense") if request.param == "no token" else Invitation(str(file))


async def test_a_node_that_has_joined_needs_no_token_to_go_on(
    tmp_path: Path, told: Invitation, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("another node")
    monkeypatch.setattr(limits, "JOIN_TRIES", 1)
    assert "the copy failed 1 times" in await ended(begun(tmp_path / "n", knows=True), told)


@pytest.mark.parametrize("is_begun", [False, True])
async def test_one_that_has_not_is_refused_without_it(
    tmp_path: Path, told: Invitation, *, is_begun: bool
) -> None:
    path = tmp_path / "n"
    if is_begun:
        begun(path, knows=False)
    before = tree(tmp_path)
    why = await ended(str(path), told)
    assert "token" in why and "tried" not in why
    assert tree(tmp_path) == before
    assert bootstrap.place_of(system_environment().fs, str(path)) is (
        bootstrap.DirectoryState.JOINING if is_begun else bootstrap.DirectoryState.EMPTY
    )

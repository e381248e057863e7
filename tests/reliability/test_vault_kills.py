"""R22, on real processes."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes import NodeProcess, StartFailed
from tests.reliability.faulty import FAULTS, MODULE

Figure = Callable[[str, object], None]
OLD, NEW = "the old passphrase", "the new passphrase"
RECORDS: Final = 16
FLAGS: Final = ("--http", "127.0.0.1:0", "--unseal-for", "1h")
RIG: Final = "dies-in-the-log,small-rotations"
SPARSE: Final = 9
"""Of all steps one in so many is tried where the machine is not the rig's alone."""
SIGKILLED: Final = -9


@dataclass(frozen=True)
class Act:
    """A change of keys. :ivar path: its passphrase's route; empty: that of the store"""

    vault: str
    passphrase: bool
    rekey: bool = False
    own: bool = False

    @property
    def seals(self) -> str:
        """Where its seal and its passphrase are."""
        return f"/vault/shop/main/{self.vault}" if self.own else "/vault"


ACTS: Final = {
    "a changed passphrase": Act("v", True),
    "all keys made anew": Act("v", True, rekey=True),
    "all keys of a vault made anew": Act("own", True, rekey=True, own=True),
    "a rotation": Act("v", False),
}


@dataclass
class Told:
    """Of each record the value that was last answered to be written, and the one on its way."""

    written: dict[str, str] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)


def posted(node: NodeProcess, path: str, body: Any) -> Any:
    reply = node.request("POST", path, body)
    assert reply.status == 200, (path, reply.body)
    return reply.json


def code(node: NodeProcess, path: str, body: Any) -> str | None:
    """The code of a refusal; None: it was done."""
    error = node.request("POST", path, body).json.get("error")
    return None if error is None else str(error["code"])


def write(node: NodeProcess, vault: str, id: str, text: str, told: Told) -> None:
    told.sent[id] = text
    posted(node, f"/vault/shop/main/{vault}/write", {"id": id, "value": text})
    told.written[id] = text


def until_rotated(node: NodeProcess, vault: str) -> None:
    while True:
        answer = node.script(f"INFO FOR VAULT {vault}", ns="shop", db="main")
        rotation = answer["results"][0]["value"]["rotation"]
        assert rotation in ("running", "none"), rotation
        if rotation == "none":
            return


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Told]]:
    """A store with records in two vaults, one of them with a passphrase of its own."""
    store = tmp_path_factory.mktemp("kills") / "template"
    told = {"v": Told(), "own": Told()}
    node = NodeProcess(store, FLAGS).start()
    node.script("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main")
    node.script(
        "DEFINE VAULT v VERSIONS 2; DEFINE VAULT own PASSPHRASE $p",
        ns="shop", db="main", params={"p": OLD},
    )  # fmt: skip
    posted(node, "/vault/passphrase", {"new": OLD})
    for seals in ("/vault", "/vault/shop/main/own"):
        posted(node, f"{seals}/unseal", {"passphrase": OLD})
    for vault, its in told.items():
        for number in range(RECORDS):
            write(node, vault, f"k{number}", f"value {number}", its)
    assert node.stop() == 0
    return store, told


def acted(node: NodeProcess, act: Act, told: Told) -> None:
    """Do it, beside somebody who writes."""
    over = threading.Event()

    def writer() -> None:
        for number in range(0, RECORDS, 3):
            if over.is_set():
                return
            try:
                write(node, act.vault, f"k{number}", f"newer {number}", told)
            except (OSError, HTTPException):
                return  # it was killed

    writing = threading.Thread(target=writer)
    writing.start()
    try:
        if act.passphrase:
            body = {"old": OLD, "new": NEW, "rekey": act.rekey}
            posted(node, f"{act.seals}/passphrase", body)
        else:
            answer = node.script(f"ROTATE VAULT {act.vault}", ns="shop", db="main")
            assert "error" not in answer, answer
        until_rotated(node, act.vault)
    except (OSError, HTTPException):
        over.set()
    finally:
        writing.join()


def revealed(node: NodeProcess, act: Act, told: Told) -> None:
    """All that was answered to be written is shown."""
    for id, text in told.written.items():
        shown = node.request("POST", f"/vault/shop/main/{act.vault}/reveal", {"id": id}).json
        assert "error" not in shown, (id, shown["error"])
        # A write that was on its way may be there, and may not.
        assert shown["value"] in (text, told.sent[id]), (id, shown["value"])


def opened(store: Path, act: Act, told: Told) -> str:
    """What a kill has left; which passphrase it has."""
    node = NodeProcess(store, FLAGS).start()
    try:
        found = []
        for passphrase in (OLD, NEW):
            refused = code(node, f"{act.seals}/unseal", {"passphrase": passphrase})
            assert refused in (None, "WrongKey"), refused
            if refused is None:
                found.append(passphrase)
        assert len(found) == 1, f"{len(found)} passphrases unseal it"
        revealed(node, act, told)
        until_rotated(node, act.vault)
        revealed(node, act, told)
        check = f"INFO FOR AUDIT OF VAULT {act.vault} CHECK; INFO FOR AUDIT OF ALL VAULTS CHECK"
        for one in node.script(check, ns="shop", db="main")["results"]:
            assert one["value"]["intact"], one["value"]
        assert node.stop() == 0
        return found[0]
    finally:
        node.end()


def killed_at(
    folder: Path, template: tuple[Path, dict[str, Told]], act: Act, at: str, faults: str
) -> tuple[bool, int, str]:
    """Whether it came to that step, how many there were, and the passphrase that it has then."""
    folder.mkdir()
    store = folder / "store"
    shutil.copytree(template[0], store)
    before = template[1][act.vault]
    told = Told(dict(before.written), dict(before.sent))
    node = NodeProcess(store, FLAGS, {FAULTS: faults}, module=MODULE).start()
    try:
        posted(node, f"{act.seals}/unseal", {"passphrase": OLD})
        Path(f"{store}.dies").write_text(at)
        acted(node, act, told)
        reached = node.process.poll() is not None or not _answers(node)
    finally:
        node.end()
    if reached:
        assert node.process.returncode == SIGKILLED
    steps = int(Path(f"{store}.steps").read_text())
    found = opened(store, act, told)
    shutil.rmtree(folder)
    return reached, steps, found


def _answers(node: NodeProcess) -> bool:
    try:
        return node.request("GET", "/health").status == 200
    except (OSError, HTTPException):
        node.process.wait()
        return False


def all_steps(
    folder: Path, template: tuple[Path, dict[str, Told]], act: Act, every: int, faults: str = RIG
) -> list[str]:
    """Kill it at one in so many steps; the passphrases that were found."""
    found, at, reached = [], 1, True
    while reached:
        for how in ("", " torn") if every == 1 else ("",):
            reached, _, passphrase = killed_at(
                folder / f"{at}{how.strip()}", template, act, f"{at}{how}", faults
            )
            found.append(passphrase)
        at += every
    return found


def judged(act: Act, found: list[str]) -> None:
    """It begins with the old passphrase and ends with the new one, and never goes back."""
    assert found[0] == OLD
    assert found[-1] == (NEW if act.passphrase else OLD)


@pytest.mark.hard
@pytest.mark.timeout(600)
def test_some_kills_while_all_keys_are_made_anew(
    template: tuple[Path, dict[str, Told]], tmp_path: Path
) -> None:
    act = ACTS["all keys made anew"]
    judged(act, all_steps(tmp_path, template, act, SPARSE))


@pytest.mark.hard
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ACTS)
def test_a_kill_at_each_step(
    name: str, template: tuple[Path, dict[str, Told]], tmp_path: Path, figure: Figure
) -> None:
    found = all_steps(tmp_path, template, ACTS[name], 1)
    judged(ACTS[name], found)
    figure(f"R22 SIGKILL, {name}", f"{len(found)} kills, {found.count(NEW)} with the new one")


@pytest.mark.hard
@pytest.mark.timeout(600)
def test_a_root_key_that_comes_behind_its_keys_is_caught(
    template: tuple[Path, dict[str, Told]], tmp_path: Path
) -> None:
    act = ACTS["all keys made anew"]
    with pytest.raises((AssertionError, StartFailed)):
        judged(act, all_steps(tmp_path, template, act, 2, f"{RIG},wraps-later"))

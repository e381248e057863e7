"""The command that runs a range of seeds reports violations, and goes on."""

from __future__ import annotations

import pytest
import structlog

from storage.txn import validation
from tests.simulation import seeds
from tests.simulation.world import World


@pytest.mark.parametrize(
    ("of", "counted"), [((), " commits"), (("--of", "watched"), " asked what is current")]
)
def test_whole_seeds_find_nothing(
    of: tuple[str, ...], counted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seeds.main(["0", "2", *of]) == 0
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("to 1: ") and counted in err


def test_a_broken_promise_is_a_line_and_the_rest_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "_require_unread", lambda *_: None)
    assert seeds.main(["0", "3"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("seed ") and err.startswith("to 2: ")


def test_a_warning_that_nothing_explains_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = World.run

    def warns(world: World) -> str:
        structlog.get_logger().warning("planted")
        return run(world)

    monkeypatch.setattr(World, "run", warns)
    assert seeds.main(["0", "1"]) == 1
    assert capsys.readouterr().out == "seed 0: logged warning planted\n"

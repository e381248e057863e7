"""An owner sees and ends what runs, where as much runs as may."""

from __future__ import annotations

from pathlib import Path

from protocol.frames import MessageKind
from tests.surfaces.wire.halls import Hall, code, hall_of, value
from tests.surfaces.wire.peers import until

LONG = "FOR $x IN 0..1000000 { LET $y = $x }"


async def test_an_owner_sees_and_ends_what_runs_where_there_is_no_room(tmp_path: Path) -> None:
    async with hall_of(Hall, tmp_path / "store") as hall:
        surface = hall.surface
        surface._wire.admission.most = 2
        busy, owner = await hall.peer(), await hall.peer()
        for id in (1, 2):
            busy.say(MessageKind.RUN, id, {"script": LONG})
        await until(lambda: hall.here.node.registry.unfinished == 2)
        assert code(await owner.run(1, "RETURN 1")) == "Busy"
        shown = value(await owner.run(2, "info for running"))
        assert len(shown) == 3, "and itself"
        for number, text in enumerate(("INFO FOR RUNNING; RETURN 1", "INFO FOR RUNNING (", "KILL")):
            assert code(await owner.run(3 + number, text)) == "Busy", text
        value(await owner.run(9, "KILL $id", params={"id": shown[0]["id"]}))
        await until(lambda: surface.running == 1)
        assert value(await owner.run(10, "RETURN 1")) == 1
        value(await owner.run(11, "KILL $id", params={"id": shown[1]["id"]}))
    assert surface.running == 0

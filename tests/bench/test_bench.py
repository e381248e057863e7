"""The benchmarks run, in small, and say what they did. How fast is not a matter for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from multiprocessing import resource_tracker
from pathlib import Path
from types import ModuleType

import pytest

from bench import __main__ as command
from bench import (
    analytics,
    backups,
    builds,
    client_loads,
    clients,
    clusters,
    etcds,
    feeds,
    figures,
    history,
    indexes,
    jetstream,
    jetstreams,
    load,
    machine,
    openbao,
    peers,
    people,
    rabbitmq,
    records,
    spaces,
    starts,
    stores,
    topics,
    vaults,
)
from bench.drivers import LoadFailed
from bench.figures import NODE, Measurement
from bench.floor import FLOOR
from bench.nodes import NodeProcess, define_place
from bench.page import page
from bench.processes import NotStarted
from bench.settings import Settings
from compiling.modules import ROOT


@pytest.fixture(scope="module", autouse=True)
def tracker() -> None:
    """The pipe that multiprocessing keeps open for ever is there before descriptors are counted."""
    resource_tracker.ensure_running()


def test_a_row_is_measured(tmp_path: Path) -> None:
    settings = Settings(tmp_path, rounds=1, scale=0.002)
    (row,) = records.rows(settings, lambda name: name == "create-1")
    assert row.name == "create-1" and row.sides[NODE][0] > 0
    assert len(row.sides) > 1 or row.gaps, "a peer was left out without a word"


ROOMS: dict[ModuleType, tuple[float, set[str]]] = {
    records: (0.01, set()), indexes: (0.01, set()), feeds: (0.02, set()), clusters: (0.005, set()),
    analytics: (0.002, {analytics.MEMORY}),
    backups: (0.002, set(backups.NAMES)),
    vaults: (0.005, {*vaults.NAMES} - {*vaults.BESIDE_PEER}),
    topics: (0.005, {"topic-backlog"}),
    stores: (0.002, set(stores.NAMES)),
    history: (0.002, set(history.NAMES)),
}  # fmt: skip
"""The modules of rows, each with the scale of its run and the rows that no peer is beside."""


@pytest.mark.hard
@pytest.mark.timeout(900)
@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_row_is_measured(room: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "IDLE_SECONDS", 0)
    scale, alone = ROOMS[room]
    # PostgreSQL's own user has to get there; each pytest closes those of all of them to others.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        settings = Settings(Path(folder), rounds=1, scale=scale)
        found = {row.name: row for row in room.rows(settings, lambda name: True)}
    assert sorted(found) == sorted(room.NAMES)
    for name, row in found.items():
        if room is not stores and name != "topic-backlog":
            measured = [row.sides[NODE]] if NODE in row.sides else row.sides.values()
            assert all(figures[0] > 0 for figures in measured)
        if name not in alone:
            assert len(row.sides) > 1 or row.gaps, "a peer was left out without a word"
    if room is vaults:
        for name in vaults.BESIDE_PEER:
            assert len(found[name].sides) > 2 or found[name].gaps
    if room is topics:
        assert len(found["topic-backlog"].sides) == 3
    if room is stores:
        assert len(found["growth-read"].sides) == len(stores.SIZES)
    if room is history:
        assert [note.split()[0] for note in found["history"].notes[::2]] == ["11", "3"]


@pytest.mark.hard
def test_a_peer_with_secrets_keeps_and_shows_them(tmp_path: Path) -> None:
    if openbao.missing() is not None:
        pytest.skip(openbao.missing() or "")
    with openbao.openbao(tmp_path / "openbao") as bao:
        bao.fill({load.revealed(number) for number in range(1, 7)})
        for kind in ("bao-write", "bao-reveal"):
            asked = load.LoadDescription(kind, bao.address, 2, 6, token=bao.token, processes=1)
            assert load.run(asked).requests == 6
        said = (tmp_path / "openbao" / "audit").read_text()
        assert said.count('"operation":"read"') >= 6, "its audit says nothing of reads"
        with pytest.raises(LoadFailed, match="403"):
            load.run(load.LoadDescription("bao-reveal", bao.address, 1, 1))


def test_a_store_of_secrets_that_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openbao, "PACKAGE", "no_such_package")
    assert "pip install" in (openbao.missing() or "")


@pytest.mark.hard
@pytest.mark.timeout(1_800)
def test_the_processor_time_of_clients_is_measured(tmp_path: Path) -> None:
    settings = Settings(tmp_path, rounds=1, scale=0.01)
    found = {row.name: row for row in client_loads.rows(settings, lambda name: True)}
    assert set(found) == set(client_loads.NAMES)
    for row in found.values():
        for language, peer in client_loads.PEERS.items():
            for side in (language, peer):
                told = [gap for gap in row.gaps if gap.startswith((language, peer, "Redis"))]
                assert side in row.sides or told, f"{side} was left out without a word"
        assert all(figures[0] > 0 for figures in row.sides.values())


@pytest.mark.hard
def test_rows_about_clients_are_measured(tmp_path: Path) -> None:
    """Each operation at one of the depths, and each depth."""
    settings = Settings(tmp_path, rounds=1, scale=0.005)
    wanted = [
        f"client-{name}-{16 if name in ('set', 'take') else 1}" for name in clients.OPERATIONS
    ]
    found = {row.name: row for row in clients.rows(settings, lambda name: name in wanted)}
    assert sorted(found) == sorted(wanted)
    for name, row in found.items():
        sides = {clients.AWAITED, clients.GO} | (
            {clients.BLOCKING} if name.endswith("-1") else set()
        )
        assert set(row.sides) == sides or row.gaps, "a client was left out without a word"


@pytest.mark.hard
def test_two_builds_are_measured_in_turns(tmp_path: Path) -> None:
    """With the rows that the floor below is not measured with, and one of each kind twice."""
    trees = {NODE: ROOT, builds.PLAIN: ROOT}
    for names, turns in ((sorted(builds.NOT_OF_THE_FLOOR), 1), (["create-1", "kv-get-50-16"], 2)):
        settings = Settings(tmp_path / str(turns), rounds=1, scale=0.01)
        settings.directory.mkdir()
        found = builds.measured(settings, names, trees, turns)
        assert [row.name for row in found] == names
        for row in found:
            assert sorted(row.sides) == [builds.PLAIN, NODE]
            assert all(len(figures) == turns for figures in row.sides.values())
            assert all(figure > 0 for figures in row.sides.values() for figure in figures)


@pytest.mark.hard
def test_the_first_start_of_each_artefact_is_measured(tmp_path: Path) -> None:
    dist, folder = tmp_path / "dist", tmp_path / "starts"
    folder.mkdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    found, gaps = starts.artefacts(dist, folder, ["podman"])
    assert len(found) == 2 + starts.COMPILED.is_dir() and "image: make image" in gaps
    rows = starts.measured(Settings(folder, rounds=1), found, gaps)
    assert [row.name for row in rows] == ["start", "start-processor"]
    assert all(set(row.sides) == set(found) for row in rows)
    assert all(figure > 0 for row in rows for (figure,) in row.sides.values())


def test_an_artefact_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    broken = starts.Artefact([sys.executable, "-c", "raise SystemExit('broken')"], None)
    with pytest.raises(NotStarted, match="broken"):
        starts.measured(Settings(tmp_path), {"broken": broken}, [])


@pytest.mark.hard
def test_the_floor_answers_what_it_is_measured_with(tmp_path: Path) -> None:
    names = sorted(set(builds.ROWS) - builds.NOT_OF_THE_FLOOR)
    settings = Settings(tmp_path, rounds=1, scale=0.01)
    found = builds.measured(settings, names, {NODE: ROOT, FLOOR: None})
    assert [row.name for row in found] == names
    assert all(row.sides[side] for row in found for side in (NODE, FLOOR))


def test_a_missing_peer_is_a_printed_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PACKAGE", "no_such_package")
    settings = Settings(tmp_path, rounds=1, scale=0.001)
    row = next(records.rows(settings, lambda name: name == "sum"))
    assert list(row.sides) == [NODE]
    shown = "".join(str(cell) for column in command.table([row]).columns for cell in column.cells)
    assert "not measured: SurrealDB: the package no_such_package" in shown


def test_a_load_of_refusals_is_no_load(tmp_path: Path) -> None:
    """A driver that took errors for answers would measure how fast a node can refuse."""
    with NodeProcess(tmp_path / "store") as node:
        with node.client() as client:
            define_place(client)  # no table
        for kind, address in (("create", node.wire), ("read-http", node.http)):
            with pytest.raises(LoadFailed, match="person"):
                load.run(load.LoadDescription(kind, address, clients=2, requests=4, among=10))


def test_ratios_say_how_many_times_better_the_node_is() -> None:
    rate = Measurement("r", "", "/s", "more", sides={NODE: [10, 30, 20], "other": [5, 5, 4]})
    time = Measurement("t", "", "ms", "less", sides={NODE: [10, 30, 20], "other": [5, 5, 4]})
    assert rate.ratio("other") == 4
    assert time.ratio("other") == 0.25
    assert rate.ratio(NODE) is None
    assert figures.spread([10, 30, 20]) == 1


def test_sides_are_measured_in_turns() -> None:
    order: list[str] = []

    def side(name: str) -> figures.Measure:
        def measure() -> float:
            order.append(name)
            return 1.0

        return measure

    found = figures.in_turns(2, {"a": side("a"), "b": side("b")})
    assert order == ["a", "b", "a", "b", "b", "a"]
    assert found == {"a": [1.0, 1.0], "b": [1.0, 1.0]}


def test_people_are_the_same_in_every_run() -> None:
    assert people.person(7) == people.person(7)
    assert [row["id"] for part in people.parts(6_000, 11) for row in part] == [*range(11, 6_011)]


def test_a_run_says_who_shares_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, says in ((2, "share 2 cores with the node"), (4, "have cores beside the node's")):
        here = set(range(cores))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, here=here: here)
        found = machine.facts(tmp_path)
        assert says in found["drivers"]
        assert says in page(command.results(found, Settings(tmp_path), []))


def test_results_are_json(tmp_path: Path) -> None:
    row = Measurement("r", "work", "/s", "more", sides={NODE: [1.0]})
    row.gaps.append("a peer that is not there")
    told = command.results({"cores": 4}, Settings(tmp_path), [row])
    assert json.loads(json.dumps(told)) == told
    shown = page(told)
    assert "| r: work | storenode | 1.00 /s |" in shown
    assert "not measured: a peer that is not there" in shown


@pytest.mark.hard
def test_rows_about_cache_keys_are_measured(tmp_path: Path) -> None:
    settings = Settings(tmp_path, rounds=1, scale=0.005)
    wanted = ("kv-get-http", "kv-set-1-16", "kv-million")
    found = {row.name: row for row in spaces.rows(settings, lambda name: name in wanted)}
    assert sorted(found) == sorted(wanted)
    for row in found.values():
        measured = row.sides.get(NODE)
        assert row.gaps if measured is None else measured[0] > 0
    assert len(found["kv-set-1-16"].sides) > 1 or found["kv-set-1-16"].gaps


def test_peers_with_queues_keep_hand_out_and_pass_on(tmp_path: Path) -> None:
    with ExitStack() as held:
        queues = []
        if jetstream.missing() is None:
            entered = jetstream.jetstream(tmp_path / "jetstream", jetstream.SYNCED)
            queues.append(held.enter_context(entered))
            queues.append(jetstream.atomic(queues[0]))
        if rabbitmq.missing() is None:
            queues.append(held.enter_context(rabbitmq.rabbitmq(tmp_path / "rabbitmq")))
        for queue in queues:
            queue.refill(0)
            assert queue.run(queue.publish, clients=2, requests=6, batch=5).requests == 6
            assert queue.run(queue.take, clients=3, requests=6, batch=5).requests == 6
            assert queue.run(queue.pass_on, clients=1, requests=3).p50_ms > 0
            queue.refill(1_000)
            if queue.read is not None:
                assert queue.run(queue.read, clients=1, requests=1).requests == 1


def test_a_queue_whose_peer_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for peer in (jetstream, rabbitmq):
        monkeypatch.setattr(peer, "PACKAGE", "no_such_package")
        assert "pip install" in (peer.missing() or "")


@pytest.mark.hard
def test_peers_of_three_go_on_without_one(tmp_path: Path) -> None:
    if etcds.missing() is None:
        with etcds.etcds(tmp_path / "etcds") as members:
            leader = members.leader()
            leader.kill()
            members.put_anywhere()
            assert members.leader() is not leader
            asked = load.LoadDescription(
                "etcd-put", f"127.0.0.1:{members.leader().port}", 2, 6, processes=1
            )
            assert load.run(asked).requests == 6
    if jetstream.missing() is None:
        name = next(iter(jetstreams.NAMES))
        with jetstreams.jetstreams(tmp_path / "jetstreams", name) as stream:
            assert stream.publish(clients=2, requests=6).requests == 6
            stream.leader().kill()
            stream.publish_anywhere()
            assert stream.leader().process is not None

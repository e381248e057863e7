"""GET /metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from actors.cluster.diagnostics import ClusterFigures
from actors.node import Node
from actors.node_info import Listening
from protocol import limits
from surfaces.http.metrics import _cluster
from surfaces.http.surface import HttpSurface
from surfaces.wire import NodeGate, WireSettings, WireSurface
from tests.actors.scripts.test_stalled_disk import Stall
from tests.architecture.sources import ROOT
from tests.surfaces.http.conftest import Serve, until
from tests.surfaces.http.raw import Raw, script


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_scrape_counts_requests_and_shows_the_node(
    raw: Raw, bearer: str, node: Node
) -> None:
    for _ in range(3):
        await raw.ask("GET", "/health")
    await raw.ask("GET", "/no")
    await raw.run("RETURN 1;", bearer)
    answer = await raw.ask("GET", "/metrics")
    assert answer.fields["content-type"].startswith("text/plain; version=")
    found = samples(answer.body.decode())
    health = frozenset({("method", "GET"), ("route", "/health"), ("status", "200")})
    unknown = frozenset({("method", "GET"), ("route", "none"), ("status", "404")})
    assert found["store_http_requests_total", health] == 3
    assert found["store_http_requests_total", unknown] == 1
    assert found["store_sequence", frozenset()] == node.status().sequence
    assert found["store_http_connections", frozenset()] == 1
    assert found["store_ready", frozenset()] == 1
    route = ("route", "/script")
    assert found["store_http_request_seconds_count", frozenset({route})] == 1
    assert found["store_http_request_seconds_bucket", frozenset({route, ("le", "+Inf")})] == 1


async def test_a_scrape_shows_the_store_and_its_backups(raw: Raw, bearer: str, node: Node) -> None:
    """And the wire, where there is one."""

    async def scrape(**who: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return samples((await raw.ask("GET", "/metrics", **who)).body.decode())

    form = frozenset({("form", "snapshot")})
    before = await scrape(authorization=bearer)
    assert ("store_backup_age_seconds", form) not in before
    assert before["store_slow_statements_total", frozenset()] == 0
    assert before["store_log_bytes", frozenset()] > 0
    assert ("store_state_bytes", frozenset()) in before
    assert not any(name.startswith("store_wire") for name, _ in before)
    assert (await raw.run("BACKUP", bearer)).status == 200
    node.registry.slow, node.committer.conflicts = 2, 3
    after = await scrape(authorization=bearer)
    assert after["store_slow_statements_total", frozenset()] == 2
    assert after["store_commit_conflicts_total", frozenset()] == 3
    assert after["store_backup_age_seconds", form] >= 0
    assert ("store_log_bytes", frozenset()) not in await scrape()


OF_SEARCH = """
    DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t; DEFINE TABLE hidden;
    DEFINE ANALYZER words TOKENIZERS class; DEFINE INDEX text ON t FIELDS s FULLTEXT ANALYZER words;
    DEFINE INDEX near ON t FIELDS v VECTOR DIMENSION 1 DISTANCE EUCLIDEAN;
    DEFINE INDEX other ON hidden FIELDS v VECTOR DIMENSION 1; DEFINE INDEX plain ON t FIELDS n;
    INSERT INTO t (array::map(0..20, |$n| { id: $n, s: 'one two', v: [$n] })) RETURN NONE;
    DEFINE USER m ROLE member PASSWORD 'correct horse battery'; GRANT READ ON TABLE t TO m
"""


async def test_the_metrics_of_search(
    raw: Raw, bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await raw.run(OF_SEARCH, bearer)).status == 200
    member = "Basic " + b64encode(b"m:correct horse battery").decode()

    async def scrape(**who: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return samples((await raw.ask("GET", "/metrics", **who)).body.decode())

    def of(index: str, table: str = "t", **more: str) -> frozenset[tuple[str, str]]:
        place = {"namespace": "a", "database": "b", "table": table, "index": index}
        return frozenset({**place, **more}.items())

    while (found := await scrape(authorization=member))["store_index_fresh", of("near")] or found[
        "store_index_fresh", of("text")
    ]:
        pass
    for index in ("near", "text"):
        assert found["store_index_records", of(index)] == 20
        assert found["store_index_segments", of(index)] == 1
    assert found["store_index_lists", of("near")] == 1
    assert ("store_index_lists", of("text")) not in found
    assert found["store_search_work_total", frozenset({("work", "fold")})] >= 2
    assert found["store_search_work_seconds_total", frozenset({("work", "fold")})] > 0
    assert found["store_search_work_total", frozenset({("work", "training")})] == 0
    assert not any(name == "store_index_recall" for name, _ in found)
    assert not any("hidden" in dict(labels).values() for _, labels in found)
    assert (await raw.run("USE a.b; MEASURE INDEX near ON t QUERIES 10", bearer)).status == 200
    found = await scrape(authorization=member)
    for bound, share in (("low", 0.7), ("value", 1), ("high", 1)):
        assert found["store_index_recall", of("near", bound=bound)] == pytest.approx(share)
    assert found["store_search_memory_bytes", frozenset()] > 0
    assert not any(name.startswith("store_index") for name, _ in await scrape())
    every = await scrape(authorization=bearer)
    assert ("store_index_fresh", of("other", "hidden")) in every
    assert not any("plain" in dict(labels).values() for _, labels in every)
    # A scrape names those that were declared first.
    monkeypatch.setattr(limits, "METRICS_NAMED", 1)
    first = await scrape(authorization=bearer)
    named = {labels for name, labels in first if name == "store_index_fresh"}
    assert named == {of("text")}


async def test_a_disk_that_stalls_keeps_no_scrape_waiting(
    raw: Raw, surface: HttpSurface, bearer: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes without topics, of which something is shown that is not on the disk yet."""
    place = "DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TOPIC t"
    assert (await raw.run(place, bearer)).status == 200
    stall = Stall(node)
    async with await Raw.connect(surface.address[1]) as publisher:
        try:
            await publisher.send(script("USE a.b; PUBLISH INTO t VALUE 1", bearer))
            await until(lambda: node.committer.ledger.state.flight.bytes)
            with monkeypatch.context() as stalled:
                stalled.setattr(limits, "METRICS_WAIT_SECONDS", 0.05)
                text = (await raw.ask("GET", "/metrics", authorization=bearer)).body.decode()
            assert "store_sequence" in text and "store_topic" not in text
        finally:
            stall.end()
        assert (await publisher.answer()).status == 200
    text = (await raw.ask("GET", "/metrics", authorization=bearer)).body.decode()
    topic = frozenset({("namespace", "a"), ("database", "b"), ("topic", "t")})
    assert samples(text)["store_topic_messages", topic] == 1


async def test_the_certificates_are_shown_to_who_may_read_the_node(
    serve: Serve, bearer: str, node: Node
) -> None:
    expires = datetime.now(UTC) + timedelta(days=3)
    node.facts.listening = (
        Listening("http", "127.0.0.1:1", True, expires),
        Listening("wire", "127.0.0.1:2", True, expires + timedelta(days=1)),
    )
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        anonymous = await raw.ask("GET", "/metrics")
        owner = await raw.ask("GET", "/metrics", authorization=bearer)
    name = "store_tls_certificate_expires_seconds"
    assert name not in anonymous.body.decode()
    shown = samples(owner.body.decode())
    for number, surface_name in enumerate(("http", "wire")):
        when = (expires + timedelta(days=number)).timestamp()
        assert shown[name, frozenset({("surface", surface_name)})] == pytest.approx(when, abs=0.01)


PACKAGING = ROOT / "packaging"
RULES = PACKAGING / "prometheus" / "alerts.yaml"
EXPRESSION = re.compile(r"^ +expr: (.+)$", re.MULTILINE)
SERIES = re.compile(r"\b((?:store|process)_[a-z_]+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+) *=")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS = {"job", "instance", "le"}
SETTING = """
    DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TOPIC q; DEFINE TOPIC other;
    DEFINE READER r ON q; DEFINE GROUP g ON q DEADLINE 1m;
    PUBLISH INTO q VALUE 1; TAKE 1 FROM q AS g;
    DEFINE USER m ROLE member PASSWORD 'correct horse battery'; GRANT READ ON TOPIC q TO m;
    DEFINE USER none ROLE member PASSWORD 'correct horse battery'
"""


def expressions() -> list[str]:
    """What the alert rules and the dashboard ask Prometheus for."""
    board = json.loads((PACKAGING / "grafana" / "storenode.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return EXPRESSION.findall(RULES.read_text()) + shown


def unknown(asked: list[str], there: dict[str, set[str]]) -> list[str]:
    """Series, and labels of series, that an expression names and no scrape has."""
    found = []
    labels = OF_PROMETHEUS.union(*there.values())
    for expression in asked:
        for name, selected in SERIES.findall(expression):
            if name not in there:
                found.append(name)
                continue
            wrong = set(LABEL.findall(selected)) - there[name] - OF_PROMETHEUS
            found += [f"{name}{{{label}}}" for label in sorted(wrong)]
        for grouped in GROUPED.findall(expression):
            found += sorted({label.strip() for label in grouped.split(",")} - labels)
    return found


async def test_alerts_and_dashboard_name_series_that_there_are(
    serve: Serve, bearer: str, node: Node
) -> None:
    expires = datetime.now(UTC) + timedelta(days=30)
    node.listens((Listening("http", "x:1", True, expires),))
    surface = await serve()
    surface.wire = WireSurface(NodeGate(node), WireSettings("127.0.0.1", 0))
    async with await Raw.connect(surface.address[1]) as raw:
        assert (await raw.run(SETTING, bearer)).status == 200
        text = (await raw.ask("GET", "/metrics", authorization=bearer)).body.decode()
    of_a_cluster = ClusterFigures(True, 1, 1.0, 1, (("n2", 0),), True, False)
    there: dict[str, set[str]] = {}
    for family in (*text_string_to_metric_families(text), *_cluster(of_a_cluster)):
        for name in (family.name, f"{family.name}_total"):
            there.setdefault(name, set())
        for sample in family.samples:
            there.setdefault(sample.name, set()).update(sample.labels)
    # By why they ended, by what was taken: there is none here.
    there["store_feeds_ended_total"].add("code")
    there["store_backup_age_seconds"].add("form")
    asked = expressions()
    assert len(asked) > 50
    assert unknown(asked, there) == []
    planted = 'sum by (flavour) (store_planted) + store_topic_messages{group="g"} + store_ready'
    assert unknown([planted], there) == ["store_planted", "store_topic_messages{group}", "flavour"]


@pytest.mark.hard
@pytest.mark.skipif(shutil.which("promtool") is None, reason="not installed: prometheus")
def test_each_alert_fires_on_what_it_is_for_and_on_nothing_else() -> None:
    words = ["promtool", "test", "rules", str(Path(__file__).with_name("alerts.yaml"))]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    tested = Path(words[-1]).read_text()
    named = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert [name for name in named if f'{{alertname="{name}"}}' not in tested] == []


def faults(scrape: bytes) -> str:
    """What Prometheus' own tool has to say against a scrape; nothing when all is well."""
    tool = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape, capture_output=True, check=False
    )
    assert tool.returncode in (0, 3), tool
    return (tool.stdout + tool.stderr).decode()


@pytest.mark.hard
@pytest.mark.skipif(shutil.which("promtool") is None, reason="not installed: prometheus")
async def test_prometheus_takes_every_scrape(serve: Serve, bearer: str, node: Node) -> None:
    """Of nobody, of a member who reads one topic, and of the owner, who sees all there is."""
    expires = datetime.now(UTC) + timedelta(days=30)
    node.listens((Listening("http", "x:1", True, expires), Listening("wire", "x:2", True, expires)))
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        assert (await raw.run(SETTING, bearer)).status == 200
        none, member = (
            "Basic " + b64encode(f"{name}:correct horse battery".encode()).decode()
            for name in ("none", "m")
        )
        shown = []
        for who in (
            {},
            {"authorization": none},
            {"authorization": member},
            {"authorization": bearer},
        ):
            answer = await raw.ask("GET", "/metrics", **who)
            assert faults(answer.body) == ""
            shown.append({name for name, _ in samples(answer.body.decode())})
        assert shown[0] <= shown[1] < shown[2] < shown[3]
        planted = answer.body + b"# TYPE store_planted_total gauge\nstore_planted_total 1\n"
        assert "store_planted_total" in faults(planted)

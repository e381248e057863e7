"""GET /metrics: counters of the surface and figures of the node, as Prometheus text.

The metric families are made at each scrape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from actors.backlog import Backlog
from actors.cluster.diagnostics import ClusterFigures, cluster_figures
from actors.indexes.metrics import IndexFigures
from actors.node_info import Listening
from actors.topics.metrics import GroupFigures, TopicFigures
from protocol import limits
from protocol.requests import Caller
from protocol.values import Tick
from surfaces.counters import BUCKETS_S, CountedWire, Counters
from surfaces.http.callers import caller
from surfaces.http.handler import Handler
from surfaces.http.shared import Http

if TYPE_CHECKING:
    from actors.node import Node

Item = TypeVar("Item")
_Figures = Callable[[Caller, Tick], tuple[list[Item], Any]]
"""Returns figures that a caller may see, and the ticket to wait for; None: there is none."""


class SurfaceCollector(Collector):
    """Metric families of one surface and its node, at one scrape.

    :param who: caller of the scrape; None: anonymous, so that it names no topic, peer or
        certificate
    """

    def __init__(self, surface: Http, who: Caller | None) -> None:
        self._surface = surface
        self._who = who

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield from self._node()
        yield from self._http()
        if self._surface.wire is not None:
            yield from _wire(self._surface.wire)
        if self._may_read_node():
            yield from _store(self._surface.node)
            yield _certificates(self._surface.node.facts.listening)
            yield from _entries(self._surface.node.statements.backlog)
            yield from _cluster(cluster_figures(self._surface.node.member))

    def _may_read_node(self) -> bool:
        return self._who is not None and self._surface.node.may_read_node(self._who)

    def _node(self) -> Iterator[Metric]:
        status = self._surface.node.status()
        info = GaugeMetricFamily(
            "store_node",
            "Version of the node as a label; the value is always 1",
            labels=["version"],
        )
        info.add_metric([status.version], 1)
        yield info
        ready = status.reason is None and self._surface.unready() is None
        for name, text, value in (
            ("store_sequence", "Newest visible sequence", status.sequence),
            ("store_log_begins", "Oldest sequence in the log", status.log_begins),
            ("store_uptime_seconds", "Seconds since the start of the node", status.uptime_seconds),
            ("store_ready", "1 if the node is ready for traffic, else 0", float(ready)),
        ):
            yield GaugeMetricFamily(name, text, value)
        yield CounterMetricFamily(
            "store_log_given_way_frames",
            "Log frames pruned before the end of their retention because the disk was full",
            status.log_given_way,
        )
        yield GaugeMetricFamily(
            "store_state_damage",
            "1 if a part of the state is unreadable, else 0",
            status.state_damage is not None,
        )
        yield GaugeMetricFamily(
            "store_log_damage", "Damaged places found in the log", status.log_damage
        )

        yield CounterMetricFamily(
            "store_commit_conflicts",
            "Commits refused because of a conflict with another commit; most are retried",
            self._surface.node.committer.conflicts,
        )
        yield CounterMetricFamily(
            "store_slow_statements",
            "Statements that took at least the time of --slow",
            self._surface.node.registry.slow,
        )
        yield GaugeMetricFamily(
            "store_scripts_memory_bytes",
            "Memory held by running and waiting scripts",
            self._surface.node.registry.memory.held,
        )
        yield from self._columns()
        yield from self._search()
        yield from self._feeds()

    def _columns(self) -> Iterator[Metric]:
        columns = self._surface.node.committer.projections
        yield GaugeMetricFamily(
            "store_columns_bytes", "Memory of column projections", columns.bytes
        )
        for name, text, value in (
            ("store_columns_built", "Blocks of columns built from records", columns.built),
            ("store_columns_patched", "Changed records put into blocks", columns.patched),
            ("store_columns_evicted", "Columns dropped to keep their memory", columns.evicted),
        ):
            yield CounterMetricFamily(name, text, value)

    def _search(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "store_search_memory_bytes",
            "Memory of decoded parts of FULLTEXT and VECTOR indexes",
            self._surface.node.search.memory,
        )
        ended = CounterMetricFamily(
            "store_search_work", "Work of the index builder that ended", labels=["work"]
        )
        seconds = CounterMetricFamily(
            "store_search_work_seconds", "Seconds that it took", labels=["work"]
        )
        for kind, count, took in self._surface.node.search.work.figures():
            ended.add_metric([kind], count)
            seconds.add_metric([kind], took)
        yield ended
        yield seconds

    def _feeds(self) -> Iterator[Metric]:
        feeds = self._surface.node.open_feeds
        yield GaugeMetricFamily("store_feeds", "Open change feeds, on all surfaces", len(feeds))
        yield CounterMetricFamily(
            "store_feed_commits", "Commits sent to feeds, counted per feed", feeds.commits.told
        )
        ended = CounterMetricFamily(
            "store_feeds_ended", "Feeds ended by the node, by error code", labels=["code"]
        )
        for code, count in sorted(feeds.ends.items()):
            ended.add_metric([code], count)
        yield ended

    def _http(self) -> Iterator[Metric]:
        surface = self._surface
        counters = surface.counters
        requests = CounterMetricFamily(
            "store_http_requests", "Responses", labels=["method", "route", "status"]
        )
        for (method, path, status), count in sorted(counters.requests.items()):
            requests.add_metric([method, path, str(status)], count)
        yield requests
        yield _seconds(
            "store_http_request_seconds",
            "Seconds from the complete request to the response",
            "route",
            counters,
        )
        yield CounterMetricFamily(
            "store_http_connections_accepted", "Connections accepted", counters.connections
        )
        yield CounterMetricFamily(
            "store_http_connections_refused",
            "Connections refused at the connection limit",
            counters.refused_connections,
        )
        yield GaugeMetricFamily("store_http_connections", "Open connections", surface.held)
        yield GaugeMetricFamily(
            "store_http_sockets", "Open connections that are WebSockets", surface.sockets
        )
        yield GaugeMetricFamily("store_http_running", "Running requests", surface.running)


class MetricsHandler(Handler):
    """Handler of GET /metrics. A credential is optional; an invalid one is refused here too."""

    async def get(self) -> None:
        """Answer the metrics."""
        who, shown = None, b""
        if b"authorization" in self.asked.fields:
            who = await caller(self.exchange)
            node = self.surface.node
            shown = await self._shown(who, node.topics.figures, topic_text)
            shown += await self._shown(who, node.search.figures, index_text)
        registry = CollectorRegistry()
        registry.register(SurfaceCollector(self.surface, who))
        ProcessCollector(registry=registry)
        self.set_header("Content-Type", CONTENT_TYPE_LATEST)
        self.finish(generate_latest(registry) + shown)

    async def _shown(
        self, who: Caller, figures: _Figures[Item], text: Callable[[Sequence[Item]], bytes]
    ) -> bytes:
        """Return the metrics of topics or indexes. Empty while the disk stalls: their figures may
        not be durable yet."""
        found, ticket = await self.surface.long_work.run(who.user, partial(figures, who))
        if ticket is not None:
            try:
                async with asyncio.timeout(limits.METRICS_WAIT_SECONDS):
                    await self.surface.node.committer.released(ticket)
            except TimeoutError:
                return b""
        return text(found)


@dataclass(frozen=True, slots=True)
class _Series:
    """A series about topics.

    :ivar label: label that distinguishes the samples of one topic
    """

    name: str
    kind: str
    text: str
    label: str | None
    samples: Callable[[TopicFigures], Iterable[tuple[str, int]]]


def _of_groups(figure: Callable[[GroupFigures], int]) -> Any:
    return lambda topic: ((group.name, figure(group)) for group in topic.groups)


_SERIES: Final = (
    _Series(
        "store_topic_messages", "gauge", "Messages in the topic", None,
        lambda topic: (("", topic.messages),),
    ),
    _Series(
        "store_topic_last_position", "gauge", "Newest position of the topic", None,
        lambda topic: (("", topic.last_position),),
    ),
    _Series(
        "store_topic_due_refused_total", "counter",
        "Failed attempts at due work of the topic, such as expiry, since the start", None,
        lambda topic: (("", topic.refused),),
    ),
    _Series(
        "store_topic_consumer_lag", "gauge", "Messages after the position of a reader", "consumer",
        lambda topic: topic.readers,
    ),
    _Series(
        "store_topic_group_lag", "gauge", "Messages after the committed position of a group",
        "group", _of_groups(lambda group: group.lag),
    ),
    _Series(
        "store_topic_group_pending", "gauge",
        "Messages of a group that are neither acknowledged nor given up", "group",
        _of_groups(lambda group: group.pending),
    ),
    _Series(
        "store_topic_group_waiting", "gauge", "Pending messages that are not in flight", "group",
        _of_groups(lambda group: group.waiting),
    ),
    _Series(
        "store_topic_group_in_flight", "gauge", "Messages delivered and not acknowledged", "group",
        _of_groups(lambda group: group.in_flight),
    ),
    _Series(
        "store_topic_group_redelivered_total", "counter", "Messages delivered again", "group",
        _of_groups(lambda group: group.redelivered),
    ),
    _Series(
        "store_topic_group_dead_lettered_total", "counter",
        "Messages given up, as dead letters or dropped", "group",
        _of_groups(lambda group: group.dead_lettered),
    ),
)  # fmt: skip


def topic_text(topics: Sequence[TopicFigures]) -> bytes:
    """Return the series of topics, their readers and groups. Formatted here: the library takes ten
    times as long, and there are up to ten times `limits.METRICS_NAMED`. The pattern of names leaves
    nothing to escape."""
    parts = []
    for series in _SERIES:
        parts.append(f"# HELP {series.name} {series.text}\n# TYPE {series.name} {series.kind}\n")
        for topic in topics:
            place = (
                f'{series.name}{{namespace="{topic.namespace}",database="{topic.database}",'
                f'topic="{topic.name}"'
            )
            for name, number in series.samples(topic):
                more = "" if series.label is None else f',{series.label}="{name}"'
                parts.append(f"{place}{more}}} {number}\n")
    return "".join(parts).encode()


_OF_INDEXES: Final[Sequence[tuple[str, str, Callable[[IndexFigures], Any]]]] = (
    ("store_index_records", "Records in the segments of the index", lambda one: one.records),
    ("store_index_segments", "Segments of the index", lambda one: one.segments),
    ("store_index_fresh", "Records that are in no segment yet", lambda one: one.fresh),
    ("store_index_lists", "Lists of a VECTOR index", lambda one: one.lists),
)


def index_text(indexes: Sequence[IndexFigures]) -> bytes:
    """Return the series of FULLTEXT and VECTOR indexes. The pattern of names leaves nothing to
    escape."""
    parts, recall = [], "store_index_recall"
    for name, text, figure in _OF_INDEXES:
        parts.append(f"# HELP {name} {text}\n# TYPE {name} gauge\n")
        for one in indexes:
            if figure(one) is not None:
                parts.append(f"{name}{{{_place(one)}}} {figure(one)}\n")
    parts.append(f"# HELP {recall} Measured recall of a VECTOR index\n# TYPE {recall} gauge\n")
    for one in indexes:
        for bound, share in zip(("low", "value", "high"), one.recall or (), strict=False):
            parts.append(f'{recall}{{{_place(one)},bound="{bound}"}} {share}\n')
    return "".join(parts).encode()


def _place(one: IndexFigures) -> str:
    return (
        f'namespace="{one.namespace}",database="{one.database}",table="{one.table}",'
        f'index="{one.name}"'
    )


def _wire(wire: CountedWire) -> Iterator[Metric]:
    counters = wire.counters
    requests = CounterMetricFamily(
        "store_wire_requests", "Responses, by the kind of the request", labels=["kind"]
    )
    for kind, count in sorted(counters.requests.items()):
        requests.add_metric([kind], count)
    yield requests
    yield _seconds(
        "store_wire_request_seconds",
        "Seconds from the complete request to the response",
        "kind",
        counters,
    )
    refusals = CounterMetricFamily(
        "store_wire_refusals", "Error responses, by code", labels=["code"]
    )
    for code, count in sorted(counters.refusals.items()):
        refusals.add_metric([code], count)
    yield refusals
    for name, text, value in (
        ("store_wire_connections_accepted", "Connections accepted", counters.connections),
        (
            "store_wire_connections_refused",
            "Connections refused at the connection limit",
            counters.refused_connections,
        ),
        ("store_wire_received_bytes", "Bytes of requests received", counters.received),
        ("store_wire_sent_bytes", "Bytes of responses sent", counters.sent),
    ):
        yield CounterMetricFamily(name, text, value)
    yield GaugeMetricFamily("store_wire_connections", "Open connections", wire.held)
    yield GaugeMetricFamily("store_wire_running", "Running scripts", wire.running)


def _store(node: Node) -> Iterator[Metric]:
    yield GaugeMetricFamily("store_log_bytes", "Size of the log in bytes", node.status().log_bytes)
    yield GaugeMetricFamily(
        "store_state_bytes", "Size of the state in bytes", node.store.state_bytes
    )
    ages = GaugeMetricFamily(
        "store_backup_age_seconds",
        "Seconds since the newest backup taken since the start of the node",
        labels=["form"],
    )
    for form, seconds in sorted(node.backups.ages_s().items()):
        ages.add_metric([form], seconds)
    yield ages


def _seconds(name: str, text: str, label: str, counters: Counters) -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label])
    for what, buckets in sorted(counters.seconds.items()):
        family.add_metric([what], _cumulative(buckets), counters.seconds_sum[what])
    return family


def _certificates(listening: Iterable[Listening]) -> Metric:
    family = GaugeMetricFamily(
        "store_tls_certificate_expires_seconds",
        "Expiry of the surface's certificate, in seconds since 1970",
        labels=["surface"],
    )
    for one in listening:
        if one.certificate_expires is not None:
            family.add_metric([one.surface], one.certificate_expires.timestamp())
    return family


def _entries(backlog: Backlog) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "store_entries_waiting",
        "Entries of the statement log and the audit trail that are not committed yet",
        len(backlog),
    )
    yield CounterMetricFamily(
        "store_entries_kept_later",
        "Waiting entries that were committed later, by this node or the leader",
        backlog.kept,
    )
    yield CounterMetricFamily(
        "store_entries_not_kept", "Entries dropped because the backlog was full", backlog.missed
    )


def _cluster(figures: ClusterFigures | None) -> Iterator[Metric]:
    if figures is None:
        return
    for name, text, value in (
        ("store_cluster_leads", "1 if this node is the leader, else 0", float(figures.leads)),
        (
            "store_cluster_epoch",
            "Epoch of the commits that the node makes or follows",
            figures.epoch,
        ),
        (
            "store_cluster_lease_seconds",
            "Seconds left of the leader's lease",
            figures.lease_seconds,
        ),
        ("store_cluster_followers", "Followers attached to this node", figures.followers),
        ("store_cluster_in_sync", "1 if this follower is in sync, else 0", float(figures.in_sync)),
        ("store_cluster_held_up", "1 if commits are held up, else 0", float(figures.held_up)),
    ):
        yield GaugeMetricFamily(name, text, value)
    lags = GaugeMetricFamily(
        "store_cluster_follower_lag", "Commits that a follower lacks", labels=["node"]
    )
    for node, lag in figures.lags:
        lags.add_metric([node], lag)
    yield lags


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    total = 0
    found = []
    for bound, count in zip((*BUCKETS_S, float("inf")), buckets, strict=True):
        total += count
        found.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
    return found

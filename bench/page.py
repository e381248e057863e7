"""Writer of docs/benchmarks.md: the figures of the last published run, and how to read them."""

from __future__ import annotations

from typing import Any, Final

HEAD: Final = """\
# Benchmarks

`make bench` measures, `make bench ROW=create-64` measures one row. `make bench PUBLISH=1` also
writes this page: the figures below are those of one run on one machine. They are for comparing the
sides with each other, and one version with the next; they are no promise.

How they come about:

- The node is a process of its own, as it is shipped: every write is synced before it is answered,
  every request is authorised. It is driven over its own wire protocol or HTTP, on the loopback,
  by processes that only send and receive; the notes say how busy these were.
- The peer is SurrealDB embedded, the Python package, in a process of its own: in process, without a
  network between. `surrealkv, synced` syncs each commit as the node does (`SURREAL_SYNC_DATA`);
  `mem` keeps nothing.
- Topics have two peers, both servers of their own on files: NATS JetStream, once with
  `sync_interval: always`, which syncs before it answers as the node does, and once as it comes,
  which answers first; and RabbitMQ with a quorum queue, which syncs before it confirms. They are
  driven through the client libraries that their users have (`nats-py`, `pika`), by up to four
  processes. An acknowledgement is answered by the node, when it is synced, and by JetStream;
  RabbitMQ answers none.
- Analytic reads and bulk writes have three: PostgreSQL, DuckDB and SQLite, with the same rows. Node
  and peers must give the same answers; the first run of a question is not counted.
- Backups have two: PostgreSQL, a server of its own on files, with `pg_dump` and `pg_restore`; and
  SurrealDB as above, whose Python package exports nothing by itself: all rows are asked for, and
  inserted again.
- A cluster is three nodes and one etcd on one machine, linked over TLS; its peers are etcd with
  three members, over its JSON gateway, and JetStream with three servers and a stream of three
  replicas, once with `sync_interval: always` and once as it comes. Processors and the disk are
  shared by all three of a side, and there is no way between them: the figures compare what a write
  costs, and say nothing of three machines. The notes say what each side has done when it answers.
- Rows `client-…` compare the clients, each on one connection to the same node: what a client costs,
  and what its caller waits. The Python client gathers messages that are published at one time.
- Rows `client-get-256`, `client-set-256`, `client-publish`, `client-rows-100k` compare the client
  of each language with one for Redis: redis-py, go-redis, ioredis, redis-rs, lettuce. The figure is
  the processor time of the client's process for an operation; what node and Redis compute does not
  count. Redis has the rows as a stream.
- Sides are measured in turns, after one round for warmth. The median counts; the spread is from the
  least to the most. For the scans node and peer must give the same answer.
- The node is the installed wheel, as it is shipped. The line above the table says which interpreter
  ran it, and which build it is: `compiled`, or `plain` (`make bench PLAIN=1`;
  [why and what](decisions/compiled.md)).
  Drivers and peers' clients are Python too, and the same in both.
- "node is" says how many times better the node is; below 1 it is worse.
"""


def page(results: dict[str, Any]) -> str:
    """Return the page for the results of a run."""
    facts = ", ".join(
        f"{name.replace('_', ' ')} {value}" for name, value in results["machine"].items()
    )
    lines = [HEAD, f"Machine: {facts}; {results['rounds']} rounds.", ""]
    if results["scale"] != 1:
        lines += [f"**A small run: {results['scale']} of the amounts of work.**", ""]
    lines += ["| row | side | median | spread | node is | goal |", "|---|---|---|---|---|---|"]
    for row in results["rows"]:
        first = True
        for side in row["sides"]:
            ratio = "" if side["ratio"] is None else f"{side['ratio']:.2f}×"
            spread = f"{side['spread']:.0%}" if len(side["figures"]) > 1 else ""
            shown = [
                f"{row['name']}: {row['work']}" if first else "",
                side["side"],
                f"{number(side['median'])} {row['unit']}",
                spread,
                ratio,
                row["goal"] if first else "",
            ]
            lines.append(f"| {' | '.join(shown)} |")
            first = False
        lines += [f"| {row['name']} | not measured: {gap} | | | | |" for gap in row["gaps"]]
    notes = [
        f"- {row['name']}: {'; '.join(row['notes'])}" for row in results["rows"] if row["notes"]
    ]
    return "\n".join([*lines, "", "Notes:", "", *notes, ""])


def number(figure: float) -> str:
    """Format a figure with its significant digits."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"

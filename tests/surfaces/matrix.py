"""Who is answered what: every route, every message of the wire and every figure, by who asks.

A cell is one sign. Its column is who asks, in this order:

| columns | who |
|---|---|
| `n` | nobody: no credential |
| `w` | a wrong password |
| `f` | a token that was never given |
| `i` | the token of a session that was idle for too long |
| `e` | the token of a session that was ended |
| `o` | the owner of another namespace |
| `m` | a member to whom nothing is granted |
| `b` | a member who holds every verb on the thing but what is needed |
| `g` | a member who holds what is needed on the thing, and nothing else |
| `V` `E` `O` | the viewer, the editor and the owner of the thing's database |
| `S` | the owner of the store |

What is needed stands behind the row's name. Who asks with a password instead of a token is answered
the same, and is asked for too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COLUMNS: Final = "nwfieombgVEOS"
"""One letter for each caller, as above."""

SIGNS: Final = {
    "+": "ok",
    "-": "nothing",
    "S": "SignInRefused",
    "E": "SessionEnded",
    "U": "Unknown",
    "K": "NotASpace",
    "N": "NotAllowed",
    "B": "BadRequest",
}
"""`ok`: it is done. `nothing`: nothing is said, or of a figure: it is not shown."""

ROUTES: Final = """
                                            | needs        | nwfie ombg VEO S
GET /                                       |              | +++++ ++++ +++ +
GET /console/{hash}/{file}                  |              | +++++ ++++ +++ +
GET /openapi.json                           |              | +++++ ++++ +++ +
GET /health                                 |              | +++++ ++++ +++ +
GET /ready                                  |              | +++++ ++++ +++ +
GET /metrics                                |              | +SEEE ++++ +++ +
POST /session                               |              | SSBBB ++++ +++ +
POST /script                                | READ         | SSEEE UUN+ +++ +
GET /watch                                  | READ         | SSEEE UUN+ +++ +
GET /backup                                 |              | SSEEE NNNN NNN +
GET /kv/{ns}/{db}/{space}                   | READ         | SSEEE KKN+ +++ +
GET /kv/{ns}/{db}/{space}/key/{key}         | READ         | SSEEE KKN+ +++ +
PUT /kv/{ns}/{db}/{space}/key/{key}         | WRITE        | SSEEE KKN+ N++ +
DELETE /kv/{ns}/{db}/{space}/key/{key}      | WRITE        | SSEEE KKN+ N++ +
POST /kv/{ns}/{db}/{space}/swap/{key}       | READ, WRITE  | SSEEE KKN+ N++ +
POST /kv/{ns}/{db}/{space}/incr/{key}       | WRITE        | SSEEE KKN+ N++ +
POST /kv/{ns}/{db}/{space}/expire/{key}     | WRITE        | SSEEE KKN+ N++ +
POST /kv/{ns}/{db}/{space}/persist/{key}    | WRITE        | SSEEE KKN+ N++ +
POST /kv/{ns}/{db}/{space}/lock/{key}       | WRITE        | SSEEE KKN+ N++ +
POST /kv/{ns}/{db}/{space}/unlock/{key}     | WRITE        | SSEEE KKN+ N++ +
GET /vault                                  |              | SSEEE ++++ +++ +
POST /vault/unseal                          | UNSEAL ON NODE | SSEEE NNN+ NNN +
POST /vault/seal                            | UNSEAL ON NODE | SSEEE NNN+ NNN +
POST /vault/passphrase                      | UNSEAL ON NODE | SSEEE NNN+ NNN +
GET /vault/{ns}/{db}/{vault}                | READ         | SSEEE UUN+ UU+ +
POST /vault/{ns}/{db}/{vault}/reveal        | READ         | SSEEE UUN+ UU+ +
POST /vault/{ns}/{db}/{vault}/write         | WRITE        | SSEEE UUN+ UU+ +
POST /vault/{ns}/{db}/{vault}/erase         | WRITE        | SSEEE UUN+ UU+ +
POST /vault/{ns}/{db}/{vault}/unseal        | UNSEAL       | SSEEE UUN+ UU+ +
POST /vault/{ns}/{db}/{vault}/seal          | UNSEAL       | SSEEE UUN+ UU+ +
POST /vault/{ns}/{db}/{vault}/passphrase    | UNSEAL       | SSEEE UUN+ UU+ +
POST /password                              |              | SSEEE ++++ +++ +
DELETE /session                             |              | SBEEE ++++ +++ +
"""

MESSAGES: Final = """
                                            | needs        | nwfie ombg VEO S
HELLO                                       |              | +SEEE ++++ +++ +
AUTH                                        |              | +SEEE ++++ +++ +
PING                                        |              | +++++ ++++ +++ +
CANCEL                                      |              | ----- ---- --- -
RUN                                         | READ         | SSSEE UUN+ +++ +
KV get                                      | READ         | SSSEE KKN+ +++ +
KV set                                      | WRITE        | SSSEE KKN+ N++ +
KV swap                                     | READ, WRITE  | SSSEE KKN+ N++ +
KV incr                                     | WRITE        | SSSEE KKN+ N++ +
KV delete                                   | WRITE        | SSSEE KKN+ N++ +
KV expire                                   | WRITE        | SSSEE KKN+ N++ +
KV persist                                  | WRITE        | SSSEE KKN+ N++ +
KV lock                                     | WRITE        | SSSEE KKN+ N++ +
KV unlock                                   | WRITE        | SSSEE KKN+ N++ +
KV keys                                     | READ         | SSSEE KKN+ +++ +
TOPIC publish                               | WRITE        | SSSEE UUN+ N++ +
TOPIC take                                  | CONSUME      | SSSEE UUN+ N++ +
TOPIC ack                                   | CONSUME      | SSSEE UUN+ N++ +
TOPIC nack                                  | CONSUME      | SSSEE UUN+ N++ +
TOPIC extend                                | CONSUME      | SSSEE UUN+ N++ +
TOPIC give_up                               | CONSUME      | SSSEE UUN+ N++ +
VAULT show                                  |              | SSSEE ++++ +++ +
VAULT unseal                                | UNSEAL       | SSSEE UUN+ UU+ +
VAULT seal                                  | UNSEAL       | SSSEE UUN+ UU+ +
VAULT passphrase                            | UNSEAL       | SSSEE UUN+ UU+ +
WATCH                                       | READ         | SSSEE UUN+ +++ +
UNWATCH                                     |              | ----- ---- --- -
BYE                                         |              | ----- ---- --- -
"""
"""A connection whose AUTH was refused speaks for nobody; one whose session has ended is told so."""

FIGURES: Final = """
                                            | needs        | nwfie ombg VEO S
process_cpu_seconds_total                   |              | +SEEE ++++ +++ +
process_max_fds                             |              | +SEEE ++++ +++ +
process_open_fds                            |              | +SEEE ++++ +++ +
process_resident_memory_bytes               |              | +SEEE ++++ +++ +
process_start_time_seconds                  |              | +SEEE ++++ +++ +
process_virtual_memory_bytes                |              | +SEEE ++++ +++ +
store_feeds                                 |              | +SEEE ++++ +++ +
store_backup_age_seconds                    | INFO ON NODE | -SEEE ---+ --- +
store_columns_built_total                   |              | +SEEE ++++ +++ +
store_columns_bytes                         |              | +SEEE ++++ +++ +
store_columns_evicted_total                 |              | +SEEE ++++ +++ +
store_columns_patched_total                 |              | +SEEE ++++ +++ +
store_commit_conflicts_total                |              | +SEEE ++++ +++ +
store_log_bytes                             | INFO ON NODE | -SEEE ---+ --- +
store_scripts_memory_bytes                  |              | +SEEE ++++ +++ +
store_slow_statements_total                 |              | +SEEE ++++ +++ +
store_state_bytes                           | INFO ON NODE | -SEEE ---+ --- +
store_wire_connections                      |              | +SEEE ++++ +++ +
store_wire_connections_accepted_total       |              | +SEEE ++++ +++ +
store_wire_connections_refused_total        |              | +SEEE ++++ +++ +
store_wire_received_bytes_total             |              | +SEEE ++++ +++ +
store_wire_refusals_total                   |              | +SEEE ++++ +++ +
store_wire_request_seconds                  |              | +SEEE ++++ +++ +
store_wire_requests_total                   |              | +SEEE ++++ +++ +
store_wire_running                          |              | +SEEE ++++ +++ +
store_wire_sent_bytes_total                 |              | +SEEE ++++ +++ +
store_entries_kept_later_total              | INFO ON NODE | -SEEE ---+ --- +
store_entries_not_kept_total                | INFO ON NODE | -SEEE ---+ --- +
store_entries_waiting                       | INFO ON NODE | -SEEE ---+ --- +
store_feed_commits_total                    |              | +SEEE ++++ +++ +
store_feeds_ended_total                     |              | +SEEE ++++ +++ +
store_http_connections                      |              | +SEEE ++++ +++ +
store_http_connections_accepted_total       |              | +SEEE ++++ +++ +
store_http_connections_refused_total        |              | +SEEE ++++ +++ +
store_http_request_seconds                  |              | +SEEE ++++ +++ +
store_http_requests_total                   |              | +SEEE ++++ +++ +
store_http_running                          |              | +SEEE ++++ +++ +
store_http_sockets                          |              | +SEEE ++++ +++ +
store_log_begins                            |              | +SEEE ++++ +++ +
store_log_damage                            |              | +SEEE ++++ +++ +
store_log_given_way_frames_total            |              | +SEEE ++++ +++ +
store_node                                  |              | +SEEE ++++ +++ +
store_ready                                 |              | +SEEE ++++ +++ +
store_sequence                              |              | +SEEE ++++ +++ +
store_state_damage                          |              | +SEEE ++++ +++ +
store_uptime_seconds                        |              | +SEEE ++++ +++ +
store_search_memory_bytes                   |              | +SEEE ++++ +++ +
store_search_work_seconds_total             |              | +SEEE ++++ +++ +
store_search_work_total                     |              | +SEEE ++++ +++ +
store_index_fresh                           | READ         | -SEEE ---+ +++ +
store_index_lists                           | READ         | -SEEE ---+ +++ +
store_index_recall                          | READ         | -SEEE ---+ +++ +
store_index_records                         | READ         | -SEEE ---+ +++ +
store_index_segments                        | READ         | -SEEE ---+ +++ +
store_topic_consumer_lag                    | READ         | -SEEE ---+ +++ +
store_topic_due_refused_total               | READ         | -SEEE ---+ +++ +
store_topic_group_dead_lettered_total       | READ         | -SEEE ---+ +++ +
store_topic_group_in_flight                 | READ         | -SEEE ---+ +++ +
store_topic_group_lag                       | READ         | -SEEE ---+ +++ +
store_topic_group_pending                   | READ         | -SEEE ---+ +++ +
store_topic_group_redelivered_total         | READ         | -SEEE ---+ +++ +
store_topic_group_waiting                   | READ         | -SEEE ---+ +++ +
store_topic_last_position                   | READ         | -SEEE ---+ +++ +
store_topic_messages                        | READ         | -SEEE ---+ +++ +
store_tls_certificate_expires_seconds       | INFO ON NODE | -SEEE ---+ --- +
"""


@dataclass(frozen=True)
class Row:
    """One row. :ivar cells: what is answered, by the letter of who asks"""

    name: str
    needs: tuple[str, ...]
    cells: dict[str, str]


def rows(table: str) -> dict[str, Row]:
    found = {}
    for line in table.strip("\n").splitlines()[1:]:
        name, needs, cells = (part.strip() for part in line.split("|"))
        signs = cells.replace(" ", "")
        assert len(signs) == len(COLUMNS), line
        assert name not in found, line
        told = {letter: SIGNS[sign] for letter, sign in zip(COLUMNS, signs, strict=True)}
        found[name] = Row(name, tuple(needs.split(", ")) if needs else (), told)
    return found

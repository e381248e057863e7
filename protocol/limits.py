"""Every limit of the node, with its reason: constants, and defaults of the few settings.

Sizes are bytes and times seconds unless the name says otherwise. `docs/limits.md` is made from this
file: the text behind `# ---` is a heading there, and groups that begin with "inside" come last.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- values -------------------------------------------------------------------------------------
DEPTH: Final = 64
"""Nesting depth of arrays and objects in a value, from any source. The value itself is level 1; the
array around rows and the message around a value are not counted. Also the nesting depth of
expressions and blocks in a script."""
NESTING: Final = 96
"""Nesting depth of a script's expressions and blocks plus that of a literal value inside them: well
below the interpreter's recursion limit."""
INT_MIN: Final = -(2**63)
"""Smallest integer: signed 64 bit."""
INT_MAX: Final = 2**63 - 1
"""Signed 64-bit integers: msgpack and every client language can hold them."""
SEQUENCE_MAX: Final = 2**53 - 1
"""Largest sequence number that a request may give. JSON carries integers up to here exactly; a
million commits a second take 285 years to get there."""
DECIMAL_DIGITS: Final = 34
"""Significant digits of a decimal (IEEE 754 decimal128)."""
DECIMAL_EXPONENT: Final = 6143
"""Exponent of a decimal (IEEE 754 decimal128). Without this limit `int(Decimal('1e1000000'))`
blocks the event loop for half a minute."""
DURATION_CHARACTERS: Final = 200
"""Length of a string that is parsed as a duration."""
DURATION_PARTS: Final = 64
"""Numbers with a unit in a duration literal of a script: `1h30m` has two."""
RECORD_ID_BYTES: Final = 256
"""Encoded length of a record id; keeps every key far below KEY_BYTES."""
NAME_CHARACTERS: Final = 64
"""Length of the name of a namespace, database, table and the like."""
ELEMENTS: Final = 4_000_000
"""Elements in one decoded message: limits the memory that a small frame can expand to."""
CONTAINERS: Final = 262_144
"""Arrays and objects in one decoded message. An empty one is 1 byte on the wire and 88 in memory:
16 MiB of them would be 1.4 GB."""

FIELDS: Final = 1_000
"""Fields defined for one table: they are read and compiled together."""
PATH_BYTES: Final = 512
"""The path of a defined field, as text; keeps its key below KEY_BYTES."""
DEFINITION_BYTES: Final = 16 * KIB
"""Stored text of one DEFINE FIELD (its type, DEFAULT, VALUE and ASSERT), or of one DEFINE FUNCTION.
"""

# --- records and transactions ---------------------------------------------------------------------
TRANSACTION_BYTES: Final = 64 * MIB
"""Effects of one commit. A commit is one log frame, which is held in memory until it is written."""
RECORD_BYTES: Final = 8 * MIB
"""Size of one record; two of them fit a wire frame."""
KEY_BYTES: Final = KIB
"""Length of a key of the state engine, and of a cache key; a longer one is `BadRequest`."""
MESSAGE_BYTES: Final = 8 * MIB
"""Size of one message of a topic, as a record."""

# --- the log --------------------------------------------------------------------------------------
LOG_FRAMES_KEPT: Final = 100_000
"""Newest commits of the log that a node keeps while it serves, unless `--keep-log` sets an age or a
size. Older segments are pruned; a reader of them gets `LogPruned`."""
SEGMENT_BYTES: Final = 64 * MIB
"""Size at which a segment is closed: small enough to prune the log in steps."""
SEGMENT_FRAMES: Final = 16_384
"""Number of frames at which a segment is closed, so that a log of small frames is pruned too."""
IN_FLIGHT_BYTES: Final = 320 * MIB
"""Memory of pending writes: commits that are not applied to the state yet. Above this, changes are
refused with `Busy` (backpressure). The largest transaction of small records takes 250 MiB until it
is applied, and must not block other writers meanwhile."""

# --- feeds ----------------------------------------------------------------------------------------
FEEDS: Final = 16_384
"""Change feeds of one user while no other user has any: as many as a surface holds connections."""
FEEDS_OF_OTHERS: Final = 4_096
"""Further change feeds on a node, for other users. The second user gets at most four fifths of
these, the third four fifths of the rest; a user without a feed may take the last one."""
CONNECTION_FEEDS: Final = 256
"""Change feeds open on one wire connection."""
FILTER_BYTES: Final = 4 * KIB
"""Text of a feed's filter."""
FILTER_NODES: Final = 256
"""Nodes in the syntax tree of a feed's filter: it is compiled in one step, and evaluated for each
change of the table."""
FILTER_TICKS: Final = 16_384
"""Work of a filter on one record, in ticks of at most some tenths of a millisecond each. A filter
that needs more ends its feed."""
USER_FILTERS: Final = 64
"""Distinct filters of one user's feeds: each holds memory for its compiled form."""
FEED_PART_BYTES: Final = MIB
"""Size, in stored bytes, above which a commit is delivered to a feed in parts of about this size. A
single larger change is a part of its own."""
FEED_BEHIND_BYTES: Final = 4 * MIB
"""Changes that may wait for a feed's reader, besides the part being sent. A feed with more ends
(slow-consumer eviction); its reader resumes it later."""
FEED_CHANGE_BYTES: Final = 8 * MIB
"""Size of a change together with the record's previous version. A larger change is sent without
that version."""
FEED_BEAT_SECONDS: Final = 15
"""Interval of a feed's heartbeats, which carry the newest sequence. They keep a reader's position
from ageing while its table is quiet."""
FEED_IMAGES_BYTES: Final = 16 * MIB
"""Cache of previous versions of records, for feeds that show or filter by them. The next change of
a record then need not read the log."""

# --- inside the log -------------------------------------------------------------------------------
TAIL_BYTES: Final = 8 * MIB
"""Newest frames kept in memory for readers of the log. About as many as a disk takes in a tenth of
a second: a reader that has caught up from the log file finds the next frame here."""
RECEIVED_BYTES: Final = 64 * MIB
"""Frames of a leader's log that a follower keeps in memory until they are released; frames beyond
this are read from the log again."""
LOG_AHEAD_BYTES: Final = 256 * KIB
"""Zero bytes preallocated behind the log's end: an fdatasync that need not extend the file is much
cheaper. Batches longer than a quarter of it get none."""
LOG_RESERVE_BYTES: Final = MIB
"""Disk space reserved so that a full disk still takes the closing mark, and commits that delete."""
LOG_RESERVE_FILES: Final = 16
"""Files in the reserve, so that a start works when no inodes are left. Twice as many as the state
engine creates at an open before it removes its old files."""
LOG_CHECK_BYTES: Final = 256 * KIB
"""Bytes per read of the background check of older log segments."""
LOG_CHECK_PAUSE_SECONDS: Final = 0.1
"""Pause between two reads of the background check, which verifies checksums of older segments,
LOG_CHECK_BYTES at a time. It costs some milliseconds of a thread, and reads 2.5 MiB a second. While
commits are coming, pauses are ten times as long."""
LOG_CHECK_AFTER_SECONDS: Final = 5
"""Delay of the background check after a start, which it must not slow down."""
LOG_CHECK_ROUND_SECONDS: Final = 24 * 3600
"""Pause between two rounds of the background check."""
LOG_PIN_SECONDS: Final = 600
"""Longest time that a reader keeps old log segments from being pruned. Enough for a gigabyte at 2
MB a second, and no longer than an operator in need of space would wait."""

# --- backups --------------------------------------------------------------------------------------
BACKUP_NAME_BYTES: Final = KIB
"""Length of a backup's name."""
BACKUP_NAME_PARTS: Final = 16
"""Parts of a backup's name, which is a path inside the backup folder."""
BACKUP_PART_BYTES: Final = 247
"""Length of one part of a backup's name: the limit of file systems, less `.partial`."""
BACKUP_RESERVE_BYTES: Final = 64 * MIB
"""Space that a backup leaves free for other users of the disk, above all the store's
log and state. Of a disk below 1 GiB a sixteenth."""
BACKUP_RESERVE_FILES: Final = 64
"""Files (inodes) that a backup leaves free for other users of the disk."""
BACKUP_SYNC_BYTES: Final = 16 * MIB
"""Bytes after which a backup is synced: the log's fsync waits for dirty pages of the same disk."""
BACKUPS_KEPT: Final = 4
"""Backup files held for clients that asked to read them: each takes its space on the disk."""

# --- joining a cluster ----------------------------------------------------------------------------
COPIES: Final = 4
"""Concurrent copies of the store for joining nodes: each takes its space on the disk."""
COPY_KEPT_SECONDS: Final = 3_600
"""Time that a copy, and the log from its sequence on, is kept after its last part was sent. A
joining node resumes and attaches within that time, or starts again."""
COPY_ALIVE_SECONDS: Final = 5
"""Interval at which a node that takes a snapshot for a copy sends a sign of life."""
COPY_SILENT_SECONDS: Final = 30
"""Silence after which a node that takes a snapshot for a copy is considered gone."""
JOIN_TRIES: Final = 10
"""Attempts in a row without progress before a joining node gives up."""
JOIN_PAUSE_SECONDS_MAX: Final = 30
"""Longest pause between two attempts of a joining node: about two minutes in all."""
BACKUPS_LISTED: Final = 10_000
"""Files in the backup folder that INFO FOR BACKUPS lists; with more it is refused."""
CLOCK_JUMP_SECONDS: Final = 366 * 86_400
"""Distance that the wall clock may be ahead of the log's newest frame at a start: longer than any
store is plausibly left stopped. Log time never goes back, so a clock that is decades ahead would
end every lease and expire every key, irreversibly."""

# --- conflicts ------------------------------------------------------------------------------------
COMMIT_RETRIES: Final = 16
"""Retries of a transaction whose validation found a conflict. After these its caller gets
`Conflict`."""
BARRIER_AFTER: Final = 4
"""Conflicts after which a transaction takes a priority lock: until it ends, no other commit may
write to the ranges that it reads. Four attempts with ever longer slices have failed by then."""
BARRIER_SECONDS: Final = 30
"""Longest time that a priority lock is held: a full transaction takes some 8 seconds of work, and
its holder gets at least every second slice. Other writers of these ranges wait no longer than that.
"""
READ_KEYS: Final = 500_000
"""Single keys in the read set of a transaction; see READ_RANGES."""
READ_RANGES: Final = 1_024
"""Ranges in the read set of a transaction. Beyond this, or READ_KEYS, the read set keeps only the
range around its keys: more conflicts, but bounded memory."""
REMEMBERED_KEYS: Final = 1_000_000
"""Changed keys kept to validate transactions that paused. A transaction older than all of these
that wants to write gets a conflict."""

# --- statement log, audit trail and history -------------------------------------------------------
STATEMENT_TEXT_BYTES: Final = 4 * KIB
"""Text of a statement in the statement log; longer text is cut and marked as cut."""
REASON_CHARACTERS: Final = 500
"""Length of a REASON."""
ENTRIES_KEPT: Final = 100_000
"""Newest entries kept of the statement log, unless `--keep-statements` says otherwise, and of the
audit trail."""
ENTRIES_WAITING: Final = 1_024
"""Entries of the statement log and the audit trail that a node buffers while it cannot commit them,
until it can or the leader has taken them."""
ENTRIES_WAITING_EACH: Final = ENTRIES_WAITING // 4
"""Buffered entries under one user's name, or under none."""
ENTRIES_CARRIED: Final = 32
"""Entries in one message to the leader. Each is a commit: some milliseconds of its event loop."""
ENTRIES_CARRIED_AT_ONCE: Final = ENTRIES_WAITING
"""Entries that a leader accepts from one follower in a burst, however fast they come."""
ENTRIES_CARRIED_A_SECOND: Final = 32
"""Entries a second that a leader accepts from one follower after such a burst."""
WALL_US_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999: the largest timestamp accepted from another node."""
ENTRY_PLACES: Final = 64
"""Places that an entry from a follower may name. An entry that touched more is visible only to
owners of the store."""
ENTRY_TEXT_CHARACTERS: Final = STATEMENT_TEXT_BYTES + 64
"""Length of the statement in an entry from a follower, with the mark that it was cut."""
ENTRY_NAME_CHARACTERS: Final = 512
"""Length of each other text in an entry from a follower."""
ENTRIES_SHOWN: Final = 100
"""Log and audit entries in one answer, unless LIMIT says otherwise."""
ENTRIES_SHOWN_MAX: Final = 1_000
"""Largest LIMIT of entries."""
HISTORY_ENTRIES: Final = 100
"""Changes in one answer of INFO FOR HISTORY, unless LIMIT says otherwise."""
HISTORY_ENTRIES_MAX: Final = 1_000
"""Largest LIMIT of INFO FOR HISTORY."""
HISTORY_BYTES: Final = 4 * MIB
"""Bytes of records after which INFO FOR HISTORY continues in another answer."""
HISTORY_FRAMES: Final = 100_000
"""Frames that INFO FOR HISTORY searches for a record that does not exist. As many as a node keeps;
about a second's work of the thread that reads the log."""
HISTORY_READ_BYTES: Final = 256 * MIB
"""Bytes of the log that INFO FOR HISTORY reads, if that is reached first."""
HISTORY_SECONDS: Final = 5
"""Seconds that INFO FOR HISTORY reads the log, which it shares with other readers."""

# --- cache spaces ---------------------------------------------------------------------------------
CACHE_INLINE_BYTES: Final = 4 * KIB
"""Size above which the value of a cache key is stored beside its entry, so that a listing of keys
reads no such value."""
KEYS_LISTED: Final = 1_000
"""Keys of a cache space in one listing."""
SWEEP_KEYS: Final = 100
"""Expired keys removed in one commit: 3 to 4 ms of the event loop in total."""
SWEEP_SECONDS: Final = 1
"""Shortest interval between two sweeps of a space for expired keys. Reads check expiry themselves.
"""

# --- topics and groups ----------------------------------------------------------------------------
MESSAGES_PUBLISHED: Final = 10_000
"""Values of one PUBLISH."""
MESSAGES_READ: Final = 1_000
"""Messages of one READ or TAKE."""
MESSAGES_READ_DEFAULT: Final = 100
"""Messages of a READ without a LIMIT."""
MESSAGES_READ_BYTES: Final = 8 * MIB
"""Stored bytes of the messages of one READ or TAKE, but at least one message, so that the answer
fits a wire frame."""
MESSAGE_NAME_BYTES: Final = KIB
"""Length of the KEY or ID of a message."""
HEADERS: Final = 64
"""Headers of one message."""
HEADERS_BYTES: Final = 64 * KIB
"""Size of all headers of one message."""
GROUP_IN_FLIGHT_DEFAULT: Final = 1_000
"""Unacknowledged deliveries of a group that names no IN FLIGHT limit."""
GROUP_IN_FLIGHT: Final = 100_000
"""Unacknowledged deliveries of one group at once."""
GROUP_DELIVERIES: Final = 1_000_000
"""Deliveries of one message."""
GROUP_BACKOFF: Final = 32
"""Steps of a BACKOFF."""
GROUP_LOOKED: Final = 500
"""Delayed or held back messages that a TAKE examines before it yields."""
SPAN_SECONDS: Final = 1_000 * 365 * 86_400
"""Longest retention, ack deadline, delay and backoff: a thousand years."""
LAPSE_HAND_OUTS: Final = 500
"""Deliveries past their ack deadline that one commit expires."""
LAPSE_BYTES: Final = 8 * MIB
"""Size of the dead letters written by a commit that expires deliveries. The last one may exceed it:
even the largest message with its headers stays well below the limit of a transaction."""
TAKE_BYTES: Final = 4 * MIB
"""Approximate size of the changes that a TAKE commits at once while it has found no message. It may
have to pass millions of delayed or held back messages and expired deliveries first."""
RECEIPTS: Final = 10_000
"""Receipts of one ACK, NACK, EXTEND or GIVE UP."""
MEMBER_BYTES: Final = 256
"""Length of the name of a group's member."""
GROUP_ERROR_CHARACTERS: Final = 4_096
"""Length of the ERROR of a NACK or GIVE UP."""
WAIT_SECONDS: Final = 300
"""The longest WAIT."""
WAITING: Final = 16_384
"""Scripts and sign-ins of one surface that are blocked: on messages, on a sequence, or on a
password hash. As many as it holds connections; they do not count as running. One user may have all
of them while no other has any, and so may sign-ins from one address."""
WAITING_OF_OTHERS: Final = 4_096
"""Further blocked scripts and sign-ins for other users, shared out like FEEDS_OF_OTHERS."""
AFTER_SECONDS: Final = 10
"""Default time-out of a request that waits for a sequence (`after`). A follower that lags further
is not fit to read from."""
REDRIVEN: Final = 10_000
"""Messages of one REDRIVE."""
TRIM_MESSAGES: Final = 512
"""Messages that retention removes in one commit."""

# --- scripts and statements -----------------------------------------------------------------------
SCRIPT_BYTES: Final = 16 * MIB
"""Length of one script: as much as a wire frame carries."""
COLUMNS_BYTES: Final = 128 * MIB
"""Memory of column projections on a node, which scans build and read; the columns used least
recently leave first. Two columns of a million records take about 10 MiB."""
COLUMN_ROWS: Final = 1_000
"""Records of a table up to which a scan reads them by row, without columns."""
STATEMENT_MEMORY_BYTES: Final = 256 * MIB
"""Rows that one statement may hold to sort, group or answer."""
SCRIPT_MEMORY_BYTES: Final = 256 * MIB
"""Memory of one script's variables together with the collections that its loops iterate over: a
short text may build hundreds of large values. Its packed values are limited separately, to as much
again."""
REQUEST_MEMORY_BYTES: Final = 256 * MIB
"""Memory that a script holds across yields: variables, rows, results of its subqueries, results.
More ends it with `TooLarge`."""
NODE_MEMORY_BYTES: Final = 1024 * MIB
"""Memory of all scripts, running or blocked: variables, rows and results, their texts while they
are parsed, and their uncommitted changes, of which each byte counts as four. Requests being read
and answers being sent have limits of their own."""
USER_MEMORY_BYTES: Final = 512 * MIB
"""Share of one user in NODE_MEMORY_BYTES while no other has any: a largest script beside a largest
transaction. The second user gets half of the rest, the third half of that. Above it the user's
largest script is ended with `Busy`."""
MOMENTS: Final = 32
"""Pinned snapshots (moments) of the store at once. Each may keep 8 MiB of memory from being freed
by the state engine."""
MOMENTS_OF_USER: Final = 16
"""Pinned snapshots of one user while no other has any. The second user gets half of the rest, the
third half of that; a user without one may take the last."""
MOMENT_SECONDS: Final = 60
"""Time that a moment is kept after a request that does not say how long."""
MOMENT_KEEP_SECONDS: Final = 600
"""Longest time that a request may ask a moment to be kept."""
MOMENT_LIFE_SECONDS: Final = 3_600
"""Longest life of a moment, however often it is read: data changed meanwhile takes disk space
twice."""
ROWS_READ: Final = 100_000_000
"""Rows that one statement may read, including its subqueries. A correlated subquery over large
tables ends by this even without a TIMEOUT."""
TOKENS: Final = 1_000_000
"""Tokens (words, numbers, strings, marks) of one script: each takes 100 bytes and more in the
syntax tree. Data is smaller and faster as parameters."""
STATEMENTS: Final = 262_144
"""Statements of one script, including those in blocks: each is held with its result to the end."""
COLUMNS: Final = 1_024
"""Columns of one SELECT or RETURN, keys of one GROUP BY or ORDER BY, sources, assignments, paths.
Each is compiled, a group or row keeps room for each, and an assignment copies the record."""
OPERANDS: Final = 16_384
"""Conditions joined by one chain of AND or OR; for more values use IN."""
VARIABLES: Final = 16_384
"""Variables of one script, including its parameters. Every statement starts from a copy of them, so
that it can be retried after a conflict."""
FUNCTION_PARAMETERS: Final = 64
"""Parameters of a function that a database defines."""
CALLS: Final = 32
"""Depth of nested calls of defined functions, which ends endless recursion. A call takes some ten
frames of Python's stack, which has a thousand."""
RANGE_ITEMS: Final = 1_000_000
"""Items of an integer range used as an array."""
STRING_BYTES: Final = 16 * MIB
"""Largest string that a function may build."""
DIMENSIONS: Final = 16_384
"""Dimensions of a vector: several times as many as embedding models produce, and some milliseconds
of work."""
PATTERN_CHARACTERS: Final = KIB
"""Length of a regular expression."""
PATTERN_CLASSES: Final = 64
"""Unicode classes, `\\pL` or `\\P{Lu}`, in a regular expression: each takes up to a third of a
millisecond to compile."""
PATTERN_STEPS: Final = 16 * MIB
"""Steps of a compiled regular expression, times bytes of the text it is matched with: at worst a
tenth of a second in one call. An expression of ten steps takes a text of 1.6 MiB, one of a thousand
steps 16 KiB."""
SEARCH_TEXT_CHARACTERS: Final = MIB
"""Characters of a record's text that are searched; the rest of a longer text is not."""
SEARCH_TERMS: Final = 262_144
"""Different terms of a record's text that are searched: `ngram` makes millions of a long one."""
QUERY_WORDS: Final = 256
"""Words of a search query."""
QUERY_CHARACTERS: Final = 16_384
"""Characters of all texts of a search query."""
TERM_BYTES: Final = 64
"""Size of a search term: a longer one is cut, and ends with a hash of the whole."""
WORD_CHARACTERS: Final = 255
"""Longest word of a text that passes through the filters of its analyzer."""
GRAM_CHARACTERS: Final = 20
"""Longest part of a word that the filters `edge` and `ngram` make."""
TOKEN_FILTERS: Final = 16
"""Tokenizers of an analyzer, and its filters."""
ANALYZER_BYTES: Final = MIB
"""Stored form of one DEFINE ANALYZER."""
SYNONYMS: Final = 10_000
"""Synonyms of an analyzer, and its stop words."""
BOOST: Final = 1_000_000
"""Largest factor of a search score."""
SLICE_US: Final = 2_000
"""Microseconds that a statement may hold the event loop before it yields. A short request takes
three or four loop iterations, and in each it may wait for one slice."""
RETRY_SLICE_US: Final = 32_000
"""Longest slice of a transaction that had conflicts: each conflict doubles its slice. A transaction
that fits one slice runs without a pause, and cannot have another conflict."""
COMMENT_CHARACTERS: Final = KIB
"""Length of a COMMENT."""
SLOW_STATEMENT_SECONDS: Final = 1
"""Duration from which a statement is logged as slow, unless `--slow` says otherwise. Waits for
messages do not count."""

# --- indexes --------------------------------------------------------------------------------------
INDEX_FIELDS: Final = 8
"""Fields of one index."""
INDEX_VALUES_BYTES: Final = 700
"""Values in the key of an index entry, all fields together: with the record's id the key stays
below KEY_BYTES. A longer value is replaced by its prefix and a hash."""
INDEX_ELEMENTS: Final = 10_000
"""Parts of an indexed value, and entries that the arrays of one record make in one index: an entry
is encoded without yielding."""
INDEX_AT_ONCE: Final = 1_000
"""Records of a table up to which DEFINE INDEX builds the index within its own commit."""
INDEX_AT_ONCE_BYTES: Final = MIB
"""Size of the entries up to which DEFINE INDEX builds the index within its own commit. With more it
is built in the background, like that of a larger table."""
INDEX_SLICE_US: Final = 3_000
"""Microseconds of work per commit of an index build in the background."""
INDEX_SLICE_BYTES: Final = 256 * KIB
"""Size of one commit of an index build in the background: other writers wait no longer than for
this."""
LOOP_ITERATIONS: Final = 10_000_000
"""Iterations of all FOR loops of a script together, so that it ends even without a TIMEOUT.
Iterations of an attempt that had a conflict do not count."""

# --- users, passwords and sessions ----------------------------------------------------------------
PASSWORD_CHARACTERS_MIN: Final = 8
"""Shortest password."""
PASSWORD_CHARACTERS_MAX: Final = 1024
"""Length of a password. A longer one is refused, never cut."""
GRANTS: Final = 1_000
"""Securables that one user has grants on: they are read with the user."""
TOKEN_BYTES: Final = 32
"""Random bytes in a session token."""
SESSION_SECONDS: Final = 12 * 3600
"""Longest life of a session."""
SESSION_IDLE_SECONDS: Final = 3600
"""Time without a request after which a session ends."""
CREDENTIAL_MEMO_SECONDS: Final = 60
"""Time that a verified password is cached, so that HTTP Basic does not run argon2 on every request.
"""
HASH_QUEUE: Final = 64
"""Passwords waiting to be hashed. With one more, the newest of the user or address with most of
them gets `Busy`."""
PASSHASH_MEMORY_KIB: Final = 256 * 1024
"""Memory of a password hash (PASSHASH) that an owner of the store supplies."""
PASSHASH_PASSES: Final = 16
"""Passes of such a hash."""
PASSHASH_LANES: Final = 4
"""Lanes of such a hash."""
PASSHASH_WORK_KIB: Final = 768 * 1024
"""Memory times passes of such a hash: about a second of a processor. Every sign-in pays it, failed
ones too."""
PASSHASH_MEMORY_KIB_OF_SPACE: Final = 64 * 1024
"""Memory of a hash that the owner of a namespace or database supplies. These three limits are
lower, since its cost falls on all users of the node."""
PASSHASH_PASSES_OF_SPACE: Final = 4
"""Passes of such a hash."""
PASSHASH_LANES_OF_SPACE: Final = 1
"""Lanes of such a hash."""
SIGN_IN_FAILURES_AN_HOUR: Final = 100
"""Failed sign-ins of one account from one address, after which further ones are checked at
SIGN_INS_A_SECOND."""
SIGN_INS_A_SECOND: Final = 10
"""Rate of sign-ins after too many failures: 36 000 an hour, for a fifth of a processor. A sign-in
with the right password waits for those before it. None is refused unchecked, or a flood would lock
out the account."""
SIGN_INS_AT_ONCE: Final = 4
"""Passwords of one account from one address that are checked concurrently; the others wait in order
of arrival."""
SIGN_INS_OF_ADDRESS: Final = 16
"""Passwords from one address that are checked concurrently, over all accounts. Accounts known at
that address are counted apart."""
SIGN_INS_WAITING: Final = 16_384
"""Sign-ins that wait for their password to be checked: as many as a surface holds connections. One
more gets `TooManyTries`."""
SIGN_IN_WAIT_SECONDS: Final = 120
"""Time after which a waiting sign-in gets `TooManyTries`."""
NETWORK_FAILURES_AN_HOUR: Final = 1_000
"""Failed sign-ins from one address, over all names, after which each failure is answered 5 s late.
"""
SIGN_INS_HELD: Final = 1_024
"""Delayed answers to failed sign-ins at once. With one more, the oldest is sent."""
SESSIONS: Final = 100_000
"""Open sessions. With one more, the session that is idle longest ends, of the user with most
sessions."""

# --- connections and requests (each surface has its own count) ------------------------------------
CONNECTIONS: Final = 16_384
"""Connections of a surface at once; one more is answered that the surface is full. An idle one
costs a descriptor and about 5 KiB, a WebSocket 18 KiB, TLS 40 KiB more. Both surfaces at this
limit: below 40 000 open files and 0.25 GB, with WebSockets 0.5 GB, with TLS 1.5 GB more."""
DESCRIPTORS_KEPT: Final = 512
"""Open files reserved for log and state, which no connection gets: 256 tables of the state engine,
segments, files being rewritten. If the process may open fewer than twice as many, half of those."""
RUNNING: Final = 400
"""Statements (wire) or requests (HTTP) running at once. Scripts of only INFO FOR RUNNING or KILL
beyond that have a limit of their own, equally high."""
RUNNING_OF_OTHERS: Final = 64
"""Further running statements or requests, for users that run few when others have taken all. The
first such user gets six sevenths of these, the next six sevenths of the rest; a user that runs
nothing may take the last."""
ENDED_SECONDS: Final = 1
"""Grace period of a script that is ended by its time-out or by KILL, to get the release of its
commits. A working disk needs a hundredth of it, and a stalled disk must not delay the answer
further."""
ADMINISTERING_CHARACTERS: Final = 4 * KIB
"""Length of a script that is checked for being only INFO FOR RUNNING or KILL: it is parsed for
that."""
FRAME_BYTES: Final = 16 * MIB
"""Size of one wire frame, and so of one answer: two of the largest records fit."""
GREETING_SECONDS: Final = 10
"""Time from accepting a wire connection to a completed sign-in: some round trips on a bad line.
Checking the credential is not counted."""
HEAD_BYTES: Final = 64 * KIB
"""Head of an HTTP request."""
HEAD_FIELDS: Final = 100
"""Header fields of an HTTP request."""
HEAD_SECONDS: Final = 10
"""Time for the head of an HTTP request to arrive."""
TLS_SECONDS: Final = 10
"""Time for a TLS handshake."""
TLS_READ_BYTES: Final = 16 * KIB
"""Read buffer of each TLS connection, from its accept to its end: the largest TLS record. asyncio
would keep 256 KiB, so 16 384 silent peers would hold four gigabytes."""
CERTIFICATE_WARNING_DAYS: Final = 14
"""Days before a surface's certificate expires from which the log warns: time to notice and repair a
renewal that failed."""
CERTIFICATE_LOOK_SECONDS: Final = 24 * 3600
"""Interval of the warnings about an expiring certificate."""
METRICS_NAMED: Final = 200
"""Topics named in one scrape of the metrics, and as many readers and groups of them: those declared
first. All others are summed in one series each."""
METRICS_WAIT_SECONDS: Final = 1
"""Time that a scrape waits for the disk to show current figures of topics. While the disk stalls it
answers without them, since metrics matter most then."""
BODY_SECONDS: Final = 30
"""Time for the body of a request to arrive; see BODY_SECONDS_BYTES."""
BODY_SECONDS_BYTES: Final = 64 * KIB
"""Bytes of a body for which it gets one second on top of BODY_SECONDS."""
WRITE_SECONDS: Final = 30
"""Time after which a peer that reads nothing is disconnected."""
IDLE_SECONDS: Final = 75
"""Time after which an idle HTTP connection is closed."""
SOCKET_MESSAGE_BYTES: Final = 64 * KIB
"""Size of a message from a client over a WebSocket: feeds need only a few words, and each socket
may buffer one incomplete message."""
PING_SECONDS: Final = 30
"""Interval of pings on a WebSocket: routers drop a silent connection after some minutes, some
proxies after one."""
PONG_SECONDS: Final = 40
"""Time from a ping, or the last sign of life, to the pong. A vanished peer is noticed within 75 s,
like an idle connection of requests, while a slow one has time to read pending data."""
CLOSE_SECONDS: Final = 5
"""Time for a peer's close frame on a WebSocket after the node has sent its own."""
REQUESTS_BYTES: Final = 256 * MIB
"""Memory of the requests of one surface, from their first byte to their answer: 16384 connections
of 16 MiB each would not fit any machine. One user gets at most half of what the others leave; all
peers that are not signed in count as one user."""
ANSWERS_BYTES: Final = 256 * MIB
"""Answers of one surface that clients have not read yet. A limit apart from REQUESTS_BYTES, so that
requests leave room for their answers."""
UNCOUNTED_BYTES: Final = 4 * KIB
"""Memory that each connection may hold uncounted, and the granularity of counting. All connections
together are a quarter of the limit, and a small request costs nothing to count."""
CONNECTION_REQUESTS_BYTES: Final = 32 * MIB
"""Memory of the open requests of one wire connection. Beyond it nothing is read until some are
answered (backpressure). Two of the longest frames: one is processed while the next arrives."""
CONNECTION_ANSWERS_BYTES: Final = 64 * MIB
"""Answers that one client has not read yet. Scripts already running when it stops reading still
answer; an answer that finds no room is replaced by a refusal."""
SMALL_BODY_BYTES: Final = 64 * KIB
"""Body of a route that needs none, or a small one (sign-in, password)."""
PIPELINED: Final = 64
"""Requests pipelined behind a running one before the surface stops reading the connection. It also
stops at SMALL_BODY_BYTES of them. Both also apply within one read."""
LINGER_SECONDS: Final = 2
"""Time that a connection is still read after its last answer, so that a reset does not discard the
answer."""
CACHE_VALUE_BYTES: Final = MIB
"""Size of the value of a cache key."""
CONNECTION_BUFFER_BYTES: Final = 4 * MIB
"""Answers waiting for a slow reader before the node stops reading from it. Also the total size of
values read for the keys that one connection requests at once."""

# --- vaults -------------------------------------------------------------------------------------
UNSEAL_SECONDS: Final = 600
"""Duration of an unseal that names none, unless `--unseal-for` says otherwise."""
UNSEAL_SECONDS_MAX: Final = 366 * 86_400
"""Longest duration of an unseal."""
VAULT_ID_BYTES: Final = 512
"""Encoded length of a record's id in a vault."""
VAULT_VALUE_BYTES: Final = MIB
"""Size of a value in a vault, as msgpack."""
VAULT_VERSIONS: Final = 100
"""Versions of a record that a vault keeps at most."""
VAULT_IDS_LISTED: Final = 1000
"""Ids of a vault in one listing."""
VAULT_ENTRIES_LISTED: Final = 1000
"""Entries of a vault's audit trail in one listing."""
VAULT_ENTRIES_KEPT: Final = 100_000
"""Entries of the trail of one vault."""
VAULT_KEY_SEALS: Final = 2**32
"""Values that one key seals, with random nonces; then the vault rotates by itself."""
PASSPHRASE_CHARACTERS_MIN: Final = 8
"""Shortest passphrase of a vault."""
PASSPHRASE_CHARACTERS_MAX: Final = 1024
"""Longest passphrase of a vault."""

# --- the cluster ----------------------------------------------------------------------------------
REPLICAS: Final = 256
"""Rows of the cluster. Each is compared with all others whenever one is declared."""
REPLICA_ENDPOINTS: Final = 16
"""Addresses for clients in one row."""
REVOKED_CERTIFICATES: Final = 4_096
"""Fingerprints remembered as revoked. Beyond them a certificate is still refused by removing the
row that names it."""
JOIN_TOKEN_SECONDS: Final = 3_600
"""Validity of a join token that names none."""
JOIN_TOKEN_SECONDS_MAX: Final = 24 * 3_600
"""Longest validity of a join token; later a new one must be made."""
PEER_ADDRESS_CHARACTERS: Final = 300
"""Length of a `host:port`: a host name has 253 characters at most."""
JOIN_TOKEN_CHARACTERS: Final = 4 * KIB
"""Length of a join token as a text, including its addresses."""

# --- inside the cluster ---------------------------------------------------------------------------
LINK_MESSAGE_BYTES: Final = TRANSACTION_BYTES + 17 * MIB
"""Size of a message between nodes: the largest log frame with its envelope."""
LINK_UNKNOWN_BYTES: Final = 16 * KIB
"""Size of a message from a node that is not known yet: a greeting, or a join token."""
LINK_BUFFER_BYTES: Final = 4 * MIB
"""Send buffer of a link above which senders wait for it to drain, and receive buffer above which
nothing more is read (backpressure)."""
LINK_UNSENT_BYTES: Final = LINK_MESSAGE_BYTES + 16 * MIB
"""Send buffer of a link above which the link is closed."""
PEER_CONNECTIONS: Final = 2 * REPLICAS
"""Connections of other nodes at once."""
PEER_UNKNOWN: Final = 64
"""Connections of other nodes that have not shown a known certificate."""
PEER_UNKNOWN_OF_ADDRESS: Final = 8
"""Connections without a known certificate from one address."""
PEER_CERTIFICATE_DAYS: Final = 365
"""Validity of a certificate that a node makes for itself."""
PEER_RENEWAL_DAYS: Final = 30
"""Days before the expiry of a node's certificate at which the next one is made and put into its
row."""
PEER_SHOWN_DAYS: Final = 15
"""Days before the expiry from which the next certificate is shown. A node that was away for half a
month still meets one that it knows, and no warning of expiry is logged
(`CERTIFICATE_WARNING_DAYS`)."""
PEER_LOOK_SECONDS: Final = 3_600
"""Interval at which a node checks whether its certificate needs renewal, and repeats its request
for it."""
GREETING_PEER_SECONDS: Final = 10
"""Time for the handshake of a connection between nodes, and again from there to its greeting."""

# --- the failover policy --------------------------------------------------------------------------
FAILOVER_ADDRESSES: Final = 16
"""Addresses of the etcd servers that hold the agreement of the nodes."""
LEASE_SECONDS_MIN: Final = 2
"""Shortest lease of a leader: a shorter one would lapse with every pause of a machine."""
LEASE_SECONDS_MAX: Final = 300
"""Longest lease of a leader: no node can write for that long after its holder is lost."""
BEHIND_MILLISECONDS_MIN: Final = 100
"""Shortest BEHIND of a failover policy."""
BEHIND_SECONDS_MAX: Final = 600
"""Longest silence of a follower (BEHIND) before it is removed from the in-sync replicas: writes
wait for that long."""
RELEASE_SECONDS: Final = 30
"""Time that a client waits for the in-sync replicas to hold a commit, or LEASE and BEHIND together
if that is longer. Then it gets `UnknownOutcome`; the commit stays pending."""

# --- inside replication ---------------------------------------------------------------------------
SHIP_BATCH_BYTES: Final = 256 * KIB
"""Approximate size of the frames in one message to a follower; a larger frame is sent alone. With
the smallest commits that is some milliseconds of the loop on both sides."""
SHIP_WINDOW_BYTES: Final = 16 * MIB
"""Bytes sent to one follower that it has not synced yet: over a round trip of 50 ms that allows 300
MB a second."""
SHIP_BEAT_SECONDS: Final = 1
"""Longest interval between two messages of a leader to each follower, each of which must be
answered (heartbeat)."""
SHIP_SILENT_SECONDS: Final = 30
"""Silence after which an end closes the link. The largest frame must arrive within that time: 80
MiB at 3 MB a second."""
COMPARE_SECONDS: Final = 600
"""Interval at which the states of a leader and its followers are compared."""
COMPARE_REST: Final = 9
"""Ratio of pauses to work of that comparison: it takes a tenth of a loop. A state of a million
records is compared in a minute."""
COMPARE_BYTES: Final = 1024 * MIB
"""Size of a state above which it is not compared automatically: during a comparison nothing that
the state held is freed."""
CLUSTER_SILENT_SECONDS: Final = 60
"""Silence of its leader after which a follower answers only owners of the store: other users'
rights may have been revoked unnoticed."""

# --- inside the node ------------------------------------------------------------------------------
MAILBOX: Final = 100_000
"""Messages queued for one actor; the next is refused with `Busy`."""
MAILBOX_SLICE: Final = 64
"""Messages that one actor handles before the next actor runs."""
CHECKPOINT_SECONDS: Final = 30
"""Interval at which the state's memtable is flushed (checkpoint); see CHECKPOINT_BYTES."""
CHECKPOINT_BYTES: Final = 64 * MIB
"""Bytes of log after which the state's memtable is flushed (checkpoint) before that interval is
over. Both limit the log that a start replays."""
DRAIN_SECONDS: Final = 30
"""Time for pending requests to finish when the node is stopped."""

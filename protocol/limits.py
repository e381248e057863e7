"""Every limit of the node, with its reason. None of them is configurable.

Sizes are bytes and times seconds unless the name says otherwise.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- values -------------------------------------------------------------------------------------
DEPTH: Final = 64
"""Arrays and objects one inside another in a value, itself counted, wherever it comes from; the
array around rows and the message around a value are none of its levels. Also expressions and blocks
one inside another in a script."""
NESTING: Final = 96
"""Expressions and blocks of a script together with the levels of a value that is written out in
them: well below what recursion bears."""
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
"""Integers are signed 64 bit: what msgpack and every client language can hold."""
SEQUENCE_MAX: Final = 2**53 - 1
"""What a request may give for a sequence: JSON carries these exactly, and a million commits each
second take 285 years to get there."""
DECIMAL_DIGITS: Final = 34
DECIMAL_EXPONENT: Final = 6143
"""IEEE 754 decimal128. Without it `int(Decimal('1e1000000'))` holds the loop for half a minute."""
DURATION_CHARACTERS: Final = 200
"""A text that is read as a duration."""
DURATION_PARTS: Final = 64
"""Numbers with a unit in a duration that stands in a script: `1h30m` has two."""
RECORD_ID_BYTES: Final = 256
"""A record id in its key encoding; keeps every key far below KEY_BYTES."""
NAME_CHARACTERS: Final = 64
"""Names of namespaces, databases, tables and the like."""
ELEMENTS: Final = 4_000_000
"""Elements in one decoded message: bounds what a small frame may blow up to."""
CONTAINERS: Final = 262_144
"""Arrays and objects in one decoded message. An empty one is 1 byte on the wire and 88 in memory:
16 MiB of them would be 1.4 GB."""

FIELDS: Final = 1_000
"""Fields defined for one table: they are read and compiled together."""
PATH_BYTES: Final = 512
"""The path of a defined field, as text; keeps its key below KEY_BYTES."""
DEFINITION_BYTES: Final = 16 * KIB
"""What is kept of one DEFINE FIELD, its type, DEFAULT, VALUE and ASSERT as text, or of one DEFINE
FUNCTION."""

# --- storage ------------------------------------------------------------------------------------
TRANSACTION_BYTES: Final = 64 * MIB
"""Effects of one commit. A commit is one frame, held in memory on its way to disk."""
RECORD_BYTES: Final = 8 * MIB
"""One record; two of them fit a wire frame."""
KEY_BYTES: Final = KIB
"""A key of the state engine or a cache key."""
MESSAGE_BYTES: Final = 8 * MIB
"""One message of a topic, as a record."""
LOG_FRAMES_KEPT: Final = 100_000
"""Newest frames that a serving node keeps; older segments are pruned."""
SEGMENT_BYTES: Final = 64 * MIB
"""A segment is closed past this: small enough to prune in steps."""
SEGMENT_FRAMES: Final = 16_384
"""… or past this many frames, so that pruning follows small frames too."""
IN_FLIGHT_BYTES: Final = 320 * MIB
"""Memory of commits that the state has not taken; past this, changes are refused `Busy`. The
largest transaction of small records takes 250 MiB until the state has taken it, and must not shut
out the others meanwhile."""
FEEDS: Final = 16_384
"""Change feeds of one user while no other has any: as many as a surface holds connections."""
FEEDS_OF_OTHERS: Final = 4_096
"""… and as many more on a node, for others. Of these the next user gets four fifths, the one behind
it four fifths of the rest, and one that has none a last one."""
CONNECTION_FEEDS: Final = 256
"""Change feeds open on one connection of the wire."""
FILTER_BYTES: Final = 4 * KIB
FILTER_NODES: Final = 256
"""The filter of a feed: it is compiled in one go, and judged for each change of the table."""
FILTER_TICKS: Final = 16_384
"""Work of a filter on one record, in ticks of up to some tenths of a millisecond each; with more
its feed ends."""
USER_FILTERS: Final = 64
"""Different filters of one user's feeds: each holds what it was compiled into."""
FEED_PART_BYTES: Final = MIB
"""What is to be told of a commit and is larger than this comes to a feed in parts, of about so many
stored bytes each. One change that is larger is a part by itself."""
FEED_BEHIND_BYTES: Final = 4 * MIB
"""What may wait for the reader of a feed, beside the part that is on its way; with more the feed
ends, and the reader comes back for it."""
FEED_CHANGE_BYTES: Final = 8 * MIB
"""A change whose record as it was would make it larger than this comes without that."""
FEED_BEAT_SECONDS: Final = 15
"""A feed says at least so often how far the store has come, so that a reader's position does not
age while its table is quiet."""
FEED_IMAGES_BYTES: Final = 16 * MIB
"""Records as they were, kept for the feeds that show or judge them: the next change of a record
then need not read the log."""
TAIL_BYTES: Final = 8 * MIB
"""Newest frames kept in memory for whoever follows the store: about what a disk takes in a tenth
of a second, so that one who fell behind and has read the log to its end finds the next frame."""
RECEIVED_BYTES: Final = 64 * MIB
"""Frames of a leader's log kept in memory until they may be shown; what is more is read from the
log again."""
LOG_AHEAD_BYTES: Final = 256 * KIB
"""Zeros written ahead of the log's end: a sync that need not make the file longer is much cheaper.
Batches longer than a quarter of it get none."""
LOG_RESERVE_BYTES: Final = MIB
"""Kept free so that a full disk still takes the closing mark, and what takes something away."""
LOG_RESERVE_FILES: Final = 16
"""Files of the reserve, so that a start works where no more inodes are left: twice as many as the
state engine makes at an open before it removes those of before."""
LOG_CHECK_BYTES: Final = 256 * KIB
LOG_CHECK_PAUSE_SECONDS: Final = 0.1
"""Older segments are read through in the background, so much at a time with such a pause: some
milliseconds of a thread, and 2.5 MiB a second. Beside commits the pauses are ten times as long."""
LOG_CHECK_AFTER_SECONDS: Final = 5
"""After a start, which is left alone …"""
LOG_CHECK_ROUND_SECONDS: Final = 24 * 3600
"""… and after each round."""
LOG_PIN_SECONDS: Final = 600
"""A reader keeps old log from being pruned for so long at most: a gigabyte at 2 MB a second, and no
longer than an operator who asks for room would wait."""
BACKUP_NAME_BYTES: Final = KIB
BACKUP_NAME_PARTS: Final = 16
"""Of a backup's name: a path inside the backup folder."""
BACKUP_PART_BYTES: Final = 247
"""Of one part of it: what file systems take, less `.partial`."""
BACKUP_RESERVE_BYTES: Final = 64 * MIB
BACKUP_RESERVE_FILES: Final = 64
"""A backup leaves so much of a disk, and of a small one a sixteenth, to the others on it, the
store's log and state above all."""
BACKUP_SYNC_BYTES: Final = 16 * MIB
"""A backup is synced after so many: what waits to be written to the disk is a wait for the log."""
BACKUPS_KEPT: Final = 4
"""Backups in files that wait for who asked to read them: each has its room on the disk."""
COPIES: Final = 4
"""Copies of the store for nodes that join, at once: each has its room on the disk."""
COPY_KEPT_SECONDS: Final = 3_600
"""Since its last part was sent a copy is kept for so long, and the log from there with it: a node
that joins goes on with it within that time, and has attached, or begins anew."""
COPY_ALIVE_SECONDS: Final = 5
"""How often a node that takes a snapshot for a copy says that it does …"""
COPY_SILENT_SECONDS: Final = 30
"""… and how long nothing is heard of it before it is taken for gone."""
JOIN_TRIES: Final = 10
"""How often in a row a node that joins tries again without having come any farther."""
JOIN_PAUSE_SECONDS_MAX: Final = 30
"""Between two tries, at most: some two minutes in all."""
BACKUPS_LISTED: Final = 10_000
"""Files in the backup folder that INFO FOR BACKUPS lists; with more it is refused."""
CLOCK_JUMP_SECONDS: Final = 366 * 86_400
"""How far the wall clock may be ahead of the log's newest frame at a start: longer than a store may
rest and nobody remember that. Log time never goes back, so a clock that is decades ahead would end
every lease and expire every key, for good."""
COMMIT_RETRIES: Final = 16
"""How often a transaction that lost a race is run again before its caller hears `Conflict`."""
BARRIER_AFTER: Final = 4
"""… and how many lost races bring it a barrier: nobody then commits to what it reads until it has
ended. Four times longer slices have not helped it until then."""
BARRIER_SECONDS: Final = 30
"""How long a barrier stands at most: a full transaction takes some 8 seconds of work, and its
holder gets at least every second slice. Others who write there wait no longer than that."""
READ_KEYS: Final = 500_000
READ_RANGES: Final = 1_024
"""Keys and ranges that a transaction remembers having read one by one. Past this it remembers the
range around them: more conflicts, bounded memory."""
REMEMBERED_KEYS: Final = 1_000_000
"""Changed keys remembered for transactions that paused; one that is older than all that is
remembered and wants to write has lost its race."""
STATEMENT_TEXT_BYTES: Final = 4 * KIB
"""Of a statement's text kept in the statement log; longer ones are cut and say so."""
REASON_CHARACTERS: Final = 500
"""Of a REASON."""
ENTRIES_KEPT: Final = 100_000
"""Newest entries of the statement log that are kept, unless `--keep-statements` says otherwise,
and of the audit trail."""
ENTRIES_WAITING: Final = 1_024
"""Of both that a node holds which can't commit them: until it can, or who leads has them."""
ENTRIES_WAITING_EACH: Final = ENTRIES_WAITING // 4
"""Of these, under one user's name, or under none."""
ENTRIES_CARRIED: Final = 32
"""That go to who leads in one message. Each is a commit: some milliseconds of its loop."""
ENTRIES_CARRIED_AT_ONCE: Final = ENTRIES_WAITING
"""Of one follower that who leads takes however quickly they come …"""
ENTRIES_CARRIED_A_SECOND: Final = 32
"""… and after that."""
WALL_US_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999: what another node's clock may say."""
ENTRY_PLACES: Final = 64
"""That an entry names which comes from a follower; one that touched more is the store's owner's to
see."""
ENTRY_TEXT_CHARACTERS: Final = STATEMENT_TEXT_BYTES + 64
"""Of its statement, what says that it was cut included …"""
ENTRY_NAME_CHARACTERS: Final = 512
"""… and of each other text in it."""
ENTRIES_SHOWN: Final = 100
"""Of them in one answer, unless LIMIT says otherwise."""
ENTRIES_SHOWN_MAX: Final = 1_000
"""As many as LIMIT may say."""
HISTORY_ENTRIES: Final = 100
"""Changes in one answer of INFO FOR HISTORY, unless LIMIT says otherwise."""
HISTORY_ENTRIES_MAX: Final = 1_000
"""As many as LIMIT may say."""
HISTORY_BYTES: Final = 4 * MIB
"""Its answer goes on in another one past so many bytes of records."""
HISTORY_FRAMES: Final = 100_000
"""Frames that it searches for a record that is not there: as many as a node keeps, a second's
work of the thread that reads the log."""
HISTORY_READ_BYTES: Final = 256 * MIB
"""Bytes of the log that it reads, as far as these are fewer."""
HISTORY_SECONDS: Final = 5
"""And for so long: others read the log too."""

CACHE_INLINE_BYTES: Final = 4 * KIB
"""A larger value of a cache key is stored beside its entry: a listing of keys then reads none."""
KEYS_LISTED: Final = 1_000
"""Keys of a cache space in one listing."""
SWEEP_KEYS: Final = 100
"""Expired keys removed in one commit: 3 to 4 ms of the loop, all told."""
SWEEP_SECONDS: Final = 1
"""A space looks for expired keys at most so often. Reads look for themselves."""

MESSAGES_PUBLISHED: Final = 10_000
"""Values of one PUBLISH."""
MESSAGES_READ: Final = 1_000
"""Messages of one READ or TAKE."""
MESSAGES_READ_DEFAULT: Final = 100
"""Messages of a READ that names no LIMIT."""
MESSAGES_READ_BYTES: Final = 8 * MIB
"""… and bytes of them, as they are stored; at least one message: the answer fits a wire frame."""
MESSAGE_NAME_BYTES: Final = KIB
"""The KEY or ID of a message."""
HEADERS: Final = 64
"""Headers of a message."""
HEADERS_BYTES: Final = 64 * KIB
"""All of its headers."""
GROUP_IN_FLIGHT_DEFAULT: Final = 1_000
GROUP_IN_FLIGHT: Final = 100_000
"""Hand-outs of one group that are out at once."""
GROUP_DELIVERIES: Final = 1_000_000
"""Hand-outs of one message."""
GROUP_BACKOFF: Final = 32
"""Steps of a BACKOFF."""
GROUP_LOOKED: Final = 500
"""Messages that a TAKE looks at before others get their turn: delayed and held back ones."""
SPAN_SECONDS: Final = 1_000 * 365 * 86_400
"""The longest retention, deadline, delay and backoff: a thousand years."""
LAPSE_HAND_OUTS: Final = 500
"""Hand-outs whose deadline has passed that are taken back in one commit."""
LAPSE_BYTES: Final = 8 * MIB
"""… and bytes of the dead letters that this makes, which one more may pass: with its headers the
largest message is then still well below a transaction."""
TAKE_BYTES: Final = 4 * MIB
"""What a TAKE that has found nothing yet changes in one commit, about: delayed messages, held back
ones and lapsed deadlines that it has to pass first may be millions."""
RECEIPTS: Final = 10_000
"""Receipts of one ACK, NACK, EXTEND or GIVE UP."""
MEMBER_BYTES: Final = 256
"""The name of a group's member."""
GROUP_ERROR_CHARACTERS: Final = 4_096
"""Of the ERROR of a NACK or GIVE UP."""
WAIT_SECONDS: Final = 300
"""The longest WAIT."""
WAITING: Final = 16_384
"""Scripts and sign-ins of one surface that wait, for messages, for what they are to come after, for
a hash: as many as it holds connections. They don't count among those that run. So many are one
user's while no other has any, or those of who signs in from one address …"""
WAITING_OF_OTHERS: Final = 4_096
"""… and so many more are for others, shared out as FEEDS_OF_OTHERS."""
AFTER_SECONDS: Final = 10
"""How long a request without a time of its own waits for the sequence that it is to come after: a
follower that is further behind is none to read from."""
REDRIVEN: Final = 10_000
"""Messages of one REDRIVE."""
TRIM_MESSAGES: Final = 512
"""Messages that retention removes in one commit."""

# --- statements ---------------------------------------------------------------------------------
SCRIPT_BYTES: Final = 16 * MIB
"""One script; what a wire frame carries."""
STATEMENT_MEMORY_BYTES: Final = 256 * MIB
"""Rows that one statement may hold to sort, group or answer."""
SCRIPT_MEMORY_BYTES: Final = 256 * MIB
"""What the variables of one script hold together, and what its loops go over: a short text may make
hundreds of large values. And, apart from these, what its packed values take."""
REQUEST_MEMORY_BYTES: Final = 256 * MIB
"""What a script holds of all this together while others have their turns: variables, rows, what its
subqueries have answered, results. What comes beyond ends it (`TooLarge`)."""
NODE_MEMORY_BYTES: Final = 1024 * MIB
"""What all scripts hold together, running or waiting: that, their texts as they are parsed, and
what they have changed and not committed, of which each byte counts as four. Requests that are read
and answers that are sent have ceilings of their own."""
USER_MEMORY_BYTES: Final = 512 * MIB
"""Of these, one user's while no other has any: a largest one beside a largest transaction. The next
user gets half of the rest, the one behind it half of that. With more the largest of the user is
ended (`Busy`)."""
MOMENTS: Final = 32
"""Moments of the store that are kept at once for requests to read in. Each may hold on to 8 MiB of
memory that the state would have freed."""
MOMENTS_OF_USER: Final = 16
"""Of these, one user's while no other has any; the next user gets half of the rest, the one behind
it half of that, and one that has none a last one."""
MOMENT_SECONDS: Final = 60
"""How long a moment is kept behind a request that does not say."""
MOMENT_KEEP_SECONDS: Final = 600
"""The longest that a request may say."""
MOMENT_LIFE_SECONDS: Final = 3_600
"""How long a moment is kept at most, however often it is read: what changes meanwhile takes room on
the disk twice."""
ROWS_READ: Final = 100_000_000
"""Rows that one statement may read, its subqueries' included: one that asks a subquery of each row
ends by name even where nobody gave it a TIMEOUT."""
TOKENS: Final = 1_000_000
"""Words, numbers, strings and marks of one script: read into a tree they take 100 bytes and more
each. Data comes shorter, and faster, as parameters."""
STATEMENTS: Final = 262_144
"""Statements of one script, those in blocks included: each is held with its result to the end."""
COLUMNS: Final = 1_024
"""Columns of one SELECT or RETURN, keys of one GROUP BY or ORDER BY, sources, assignments, paths:
each is compiled, a group or row keeps room for each, and an assignment copies the record."""
OPERANDS: Final = 16_384
"""Conditions that one chain of AND or OR joins; for more values there is IN."""
VARIABLES: Final = 16_384
"""Variables of one script, its parameters included. Every statement starts from a copy of them, so
that one which lost a race can be run again."""
FUNCTION_PARAMETERS: Final = 64
"""Parameters of a function that a database defines."""
CALLS: Final = 32
"""Functions of databases that run one inside another: what calls itself without end stops there. A
call takes some ten frames of Python's stack, of which it has a thousand."""
RANGE_ITEMS: Final = 1_000_000
"""Items of an integer range used as an array."""
STRING_BYTES: Final = 16 * MIB
"""What a string function may build."""
DIMENSIONS: Final = 16_384
"""Of a vector: several times what models make, and some milliseconds of work."""
PATTERN_CHARACTERS: Final = KIB
"""A regular expression."""
PATTERN_CLASSES: Final = 64
"""Of Unicode, `\\pL` or `\\P{Lu}`, that a regular expression names: each takes up to a third of a
millisecond to compile."""
PATTERN_STEPS: Final = 16 * MIB
"""Steps of a compiled regular expression, times bytes of the text it is held against: a tenth of a
second in one call where it takes all of them for each byte. One of ten steps takes a text of
1.6 MiB, one of a thousand 16 KiB."""
SLICE_US: Final = 2_000
"""Microseconds that a statement may hold the loop before others get their turn. A short request
takes three or four turns of the loop, and in each it may wait for one slice."""
RETRY_SLICE_US: Final = 32_000
"""… and may grow to when its transaction has lost races: each lost one doubles it. What takes no
longer than this then runs in one go, and can't lose again."""
COMMENT_CHARACTERS: Final = KIB
"""Of a COMMENT."""
SLOW_STATEMENT_SECONDS: Final = 1
"""From then on the log says of a statement that it was slow, unless `--slow` says otherwise; its
waits for messages don't count."""
INDEX_FIELDS: Final = 8
"""Fields of one index."""
INDEX_VALUES_BYTES: Final = 700
"""Values in the key of an index entry, all fields together: with a record's id it stays below
KEY_BYTES. What is longer is kept as its beginning and a hash."""
INDEX_ELEMENTS: Final = 10_000
"""Parts of a value where a field is indexed, and entries that the arrays of one record make in one
index: an entry is encoded whole while everybody else waits."""
INDEX_AT_ONCE: Final = 1_000
"""Records of a table up to which an index is built by the statement that defines it, …"""
INDEX_AT_ONCE_BYTES: Final = MIB
"""… unless they make more entries than this: then it is built as that of a larger table."""
INDEX_SLICE_US: Final = 3_000
INDEX_SLICE_BYTES: Final = 256 * KIB
"""One commit of an index that is being built: writers wait behind no more than that."""
LOOP_ITERATIONS: Final = 10_000_000
"""Passes of all FORs of a script together: it must end even without TIMEOUT. What an attempt that
lost a race has passed does not count."""

# --- users --------------------------------------------------------------------------------------
PASSWORD_CHARACTERS_MIN: Final = 8
PASSWORD_CHARACTERS_MAX: Final = 1024
"""Never cut: a longer one is refused."""
GRANTS: Final = 1_000
"""Things that one user has grants on: they are read with the user."""
TOKEN_BYTES: Final = 32
SESSION_SECONDS: Final = 12 * 3600
SESSION_IDLE_SECONDS: Final = 3600
CREDENTIAL_MEMO_SECONDS: Final = 60
"""How long a verified password is remembered, so that Basic on every request does not pay argon2
each time."""
HASH_QUEUE: Final = 64
"""Passwords waiting to be hashed; with one more, one of those who hold most of it hears `Busy`."""
PASSHASH_MEMORY_KIB: Final = 256 * 1024
PASSHASH_PASSES: Final = 16
PASSHASH_LANES: Final = 4
PASSHASH_WORK_KIB: Final = 768 * 1024
"""Of a hash that an owner of the store brings: memory, passes, lanes, and memory times passes,
about a second of a processor. It is paid at each sign-in, wrong ones too."""
PASSHASH_MEMORY_KIB_OF_SPACE: Final = 64 * 1024
PASSHASH_PASSES_OF_SPACE: Final = 4
PASSHASH_LANES_OF_SPACE: Final = 1
"""… and of one that the owner of a space brings, who pays with everybody's processors."""
SIGN_IN_FAILURES_AN_HOUR: Final = 100
"""For one account from one address, before the next ones are looked at in this pace only:"""
SIGN_INS_A_SECOND: Final = 10
"""… 36 000 an hour, for a fifth of a processor. The one who has the right password waits for those
before it: none is refused unseen, or a flood would keep it out."""
SIGN_INS_AT_ONCE: Final = 4
"""Passwords of one account from one address that are looked at at once; the others wait, first come
first served …"""
SIGN_INS_OF_ADDRESS: Final = 16
"""… and of one address, whatever the accounts; apart from these, of those known there."""
SIGN_INS_WAITING: Final = 16_384
"""Sign-ins that wait so: as many as a surface holds connections; one more hears `TooManyTries`."""
SIGN_IN_WAIT_SECONDS: Final = 120
"""A sign-in that has waited for so long hears `TooManyTries`."""
NETWORK_FAILURES_AN_HOUR: Final = 1_000
"""From one address, whatever the names, before each failure is answered 5 s late."""
SIGN_INS_HELD: Final = 1_024
"""Answers to failures held back at once; with one more, the one held longest is sent."""
SESSIONS: Final = 100_000
"""Open sessions; with one more, the one idle longest ends, of the user who has most."""

# --- surfaces (each has its own count) ------------------------------------------------------------
CONNECTIONS: Final = 16_384
"""Held at once; one more is told that the surface is full. An idle one costs a descriptor and some
5 KiB, a WebSocket 18, and with TLS 40 more: with both surfaces at their ceiling, fewer than 40 000
open files and a quarter gigabyte, or half of one, and with TLS another and a half."""
DESCRIPTORS_KEPT: Final = 512
"""Open files that no connection gets, so that log and state can always open theirs: 256 tables of
the state engine, segments, what is being written anew. Where fewer than twice as many are allowed
in all, half of those."""
RUNNING: Final = 400
"""Statements (wire) or requests (HTTP) running at once. Once it is reached, those that only ask
INFO FOR RUNNING or KILL have a ceiling of their own, as high."""
RUNNING_OF_OTHERS: Final = 64
"""… and so many more are let in of users that run few, where others have taken all: the first who
comes gets six sevenths of these, the next one of the rest, and one that runs nothing a last one."""
ENDED_SECONDS: Final = 1
"""A script that its time or KILL has ended waits so long for what it committed before that: a disk
that works needs a hundredth of it, and one that stalls shall not keep its answer."""
ADMINISTERING_CHARACTERS: Final = 4 * KIB
"""Of such a script: it is parsed to see whether it is one."""
FRAME_BYTES: Final = 16 * MIB
"""One frame of the wire, and so one answer: two of the largest records fit."""
GREETING_SECONDS: Final = 10
"""From a wire connection to a user signed in on it: some round trips on a bad line. How long a
credential takes to be judged is not counted."""
PART_BYTES: Final = MIB
HEAD_BYTES: Final = 64 * KIB
HEAD_FIELDS: Final = 100
HEAD_SECONDS: Final = 10
TLS_SECONDS: Final = 10
TLS_READ_BYTES: Final = 16 * KIB
"""Kept ready to read into for each TLS connection, from its accept to its end: the largest record
of TLS. asyncio would keep 256 KiB, so 16 384 peers that say nothing would hold four gigabytes."""
CERTIFICATE_WARNING_DAYS: Final = 14
"""So long before the certificate of a surface expires the log begins to warn: time to notice that
what should have renewed it did not, and to mend that."""
CERTIFICATE_LOOK_SECONDS: Final = 24 * 3600
"""Between two such lines."""
METRICS_NAMED: Final = 200
"""Topics that a scrape names, and as many readers and groups of theirs: those of the topics that
were declared first. What it shows of all others is summed in one series each."""
METRICS_WAIT_SECONDS: Final = 1
"""How long a scrape waits for the disk, to show topics as they are; while that stalls it goes on
without them, for nobody looks at figures more than then."""
BODY_SECONDS: Final = 30
BODY_SECONDS_BYTES: Final = 64 * KIB
"""A body gets BODY_SECONDS and one second more for each of these."""
WRITE_SECONDS: Final = 30
"""A peer that takes nothing for so long is cut off."""
IDLE_SECONDS: Final = 75
SOCKET_MESSAGE_BYTES: Final = 64 * KIB
"""One message that a client sends over a WebSocket: feeds read none but a few words, and each
socket may hold one that is not whole."""
PING_SECONDS: Final = 30
"""Between two pings on a WebSocket: routers forget a quiet connection after some minutes, some
proxies after one."""
PONG_SECONDS: Final = 40
"""From a ping, or the last sign of life, to the answer: a peer that vanished is noticed within
75 s, as long as an idle connection of requests has, and a slow one gets to read what was sent
before."""
CLOSE_SECONDS: Final = 5
"""For a peer's goodbye on a WebSocket once it has been sent ours."""
REQUESTS_BYTES: Final = 256 * MIB
"""What requests make one surface hold at once, from their first byte to their answer: 16384
connections with 16 MiB each would not fit any machine. One user's are at most half of what the
others leave; all peers together that nobody has signed in for are one user in this."""
ANSWERS_BYTES: Final = 256 * MIB
"""… and answers that their clients have not taken. They have a ceiling of their own, so that
requests leave room for what is answered to them."""
UNCOUNTED_BYTES: Final = 4 * KIB
"""What every connection may hold without being counted, and the step in which it is counted: with
all connections a quarter of the ceiling, and a small request pays nothing for it."""
CONNECTION_REQUESTS_BYTES: Final = 32 * MIB
"""What the requests hold that are open on one wire connection; nothing more is read until some are
answered. Two of the longest frames: one is worked on while the other comes."""
CONNECTION_ANSWERS_BYTES: Final = 64 * MIB
"""Answers that one client has not taken. Scripts that run already when it stops reading still
answer; one that finds no room is told so in place of its answer."""
SMALL_BODY_BYTES: Final = 64 * KIB
"""A body of a route that needs none, or a small one (sign-in, password)."""
PIPELINED: Final = 64
"""Requests waiting behind one that runs on a connection before the surface stops reading it, or
SMALL_BODY_BYTES of them: also within one read."""
LINGER_SECONDS: Final = 2
"""After a last answer the connection is still read so long, so that the answer is not lost to a
reset."""
CACHE_VALUE_BYTES: Final = MIB
"""One value of a cache key."""
CONNECTION_BUFFER_BYTES: Final = 4 * MIB
"""Answers waiting for a slow reader before the node stops reading from it, and what the keys are
read for together that one connection asks for at once."""

# --- vaults -------------------------------------------------------------------------------------
UNSEAL_SECONDS: Final = 600
"""How long an unseal lasts when nothing else is said."""
UNSEAL_SECONDS_MAX: Final = 366 * 86_400
"""The longest that it may be told to last."""
VAULT_ID_BYTES: Final = 512
VAULT_VALUE_BYTES: Final = MIB
"""One value of a vault, as msgpack."""
VAULT_VERSIONS: Final = 100
"""Versions of a record that a vault keeps at most."""
VAULT_IDS_LISTED: Final = 1000
VAULT_ENTRIES_LISTED: Final = 1000
VAULT_ENTRIES_KEPT: Final = 100_000
"""Entries of the trail of one vault."""
VAULT_KEY_SEALS: Final = 2**32
"""Values that one key seals, with random nonces; then the vault rotates by itself."""
PASSPHRASE_CHARACTERS_MIN: Final = 8
PASSPHRASE_CHARACTERS_MAX: Final = 1024

# --- the cluster ----------------------------------------------------------------------------------
REPLICAS: Final = 256
"""Rows of the cluster. Each is compared with all others whenever one is declared."""
REPLICA_ENDPOINTS: Final = 16
"""Addresses for clients in one row."""
REVOKED_CERTIFICATES: Final = 4_096
"""Fingerprints that are remembered as revoked. Beyond them a certificate is still shut out with the
row that names it."""
JOIN_TOKEN_SECONDS: Final = 3_600
"""How long a join token can be used when nothing else is said …"""
JOIN_TOKEN_SECONDS_MAX: Final = 24 * 3_600
"""… and at most: who waits longer is given another."""
PEER_ADDRESS_CHARACTERS: Final = 300
"""`host:port`: a host name has 253 at most."""
JOIN_TOKEN_CHARACTERS: Final = 4 * KIB
"""A join token as a text, the addresses in it included."""
LINK_MESSAGE_BYTES: Final = TRANSACTION_BYTES + 17 * MIB
"""One message between nodes: the largest frame of the log, and what stands around it."""
LINK_UNKNOWN_BYTES: Final = 16 * KIB
"""… of a node that is not known yet: a greeting, or a join token."""
LINK_BUFFER_BYTES: Final = 4 * MIB
"""Messages that one end has sent and the other has not taken: as much may wait before `drained` of
a link waits, and, of what has come, before no more is read."""
LINK_UNSENT_BYTES: Final = LINK_MESSAGE_BYTES + 16 * MIB
"""… and with more the link is ended."""
PEER_CONNECTIONS: Final = 2 * REPLICAS
"""Connections of other nodes at once …"""
PEER_UNKNOWN: Final = 64
"""… and, of all, those that have not shown a certificate that is known."""
PEER_UNKNOWN_OF_ADDRESS: Final = 8
"""… from one address."""
PEER_CERTIFICATE_DAYS: Final = 365
"""That a certificate lasts which a node makes for itself."""
PEER_RENEWAL_DAYS: Final = 30
"""So long before its end the next one is made and put into the node's row …"""
PEER_SHOWN_DAYS: Final = 15
"""… and shown from then on: a node that was away for half a month still finds one that it knows,
and nobody is warned of one that has been taken care of (`CERTIFICATE_WARNING_DAYS`)."""
PEER_LOOK_SECONDS: Final = 3_600
"""How often a node looks whether its certificate has to be renewed, and asks again to be."""
GREETING_PEER_SECONDS: Final = 10
"""From a connection between nodes to the end of its handshake, and from there to its greeting."""
FAILOVER_ADDRESSES: Final = 16
"""Of the servers by which nodes agree."""
LEASE_SECONDS_MIN: Final = 2
"""A shorter lease lapses with every pause of a machine …"""
LEASE_SECONDS_MAX: Final = 300
"""… and as long as it lasts nobody writes when its holder is gone."""
BEHIND_MILLISECONDS_MIN: Final = 100
BEHIND_SECONDS_MAX: Final = 600
"""How long a follower may be silent before the others go on without it: as long do writes wait."""
RELEASE_SECONDS: Final = 30
"""How long who asked waits for followers to hold a commit, or for LEASE and BEHIND together if that
is longer. Then the outcome is unknown; the commit stays on its way."""
SHIP_BATCH_BYTES: Final = 256 * KIB
"""Frames that go to a follower in one message, about; one that is larger goes alone. Of the
smallest commits that is some milliseconds of a loop, here and there."""
SHIP_WINDOW_BYTES: Final = 16 * MIB
"""What a leader has sent to one follower that is not on its disk yet: over a way of 50 ms that is
300 MB a second."""
SHIP_BEAT_SECONDS: Final = 1
"""A leader says something to each follower at least so often, and wants to hear something back."""
SHIP_SILENT_SECONDS: Final = 30
"""Who has heard nothing for so long gives the link up. The largest frame has to come through in
that time: 80 MiB at 3 MB a second."""
COMPARE_SECONDS: Final = 600
"""How often the states of a leader and its followers are compared …"""
COMPARE_REST: Final = 9
"""… and how much longer the pauses of that are than its steps: it takes a tenth of a loop. A state
of a million records is gone through in a minute."""
COMPARE_BYTES: Final = 1024 * MIB
"""A larger state is not compared by itself: while it is gone through nothing that it held is freed.
"""
CLUSTER_SILENT_SECONDS: Final = 60
"""A follower that has heard nothing of its leader for so long answers owners of the store alone: it
may not know whose rights have ended."""

# --- actors -------------------------------------------------------------------------------------
MAILBOX: Final = 100_000
"""Messages waiting for one actor; the next is refused with `Busy`."""
MAILBOX_SLICE: Final = 64
"""Messages that one actor handles before the next one's turn."""
CHECKPOINT_SECONDS: Final = 30
CHECKPOINT_BYTES: Final = 64 * MIB
"""The state is flushed after so long, or so much log: bounds what a start replays."""
DRAIN_SECONDS: Final = 30
"""Work in flight gets this long to finish when the node is told to stop."""

"""Soft bounds of `server/`: calls, and the admin port; and of the command line."""

from __future__ import annotations

from typing import Final

from logservice.bounds.hard import BLOCK_BYTES_MAX
from logservice.bounds.nodehost import READ_BYTES_MAX

# --- configuration --------------------------------------------------------------------------------

STORE_LABELS_MAX: Final = 32
"""Labels in a store's configuration: half of what HAKeeper takes of a store, which adds its own."""

STORE_LABEL_BYTES_MAX: Final = 2048
"""Bytes of their names and values: half of what HAKeeper takes of a store."""

# --- verbs ----------------------------------------------------------------------------------------

STORES_NAMED_MAX: Final = 6
"""Stores that the answer to a wrong name of one names. With names of NAME_BYTES_MAX they still fit
the words of a refusal."""

# --- calls ----------------------------------------------------------------------------------------

RPC_TIMEOUT_DEFAULT_S: Final = 10.0
"""Deadline of a call that brings none: ten elections, so that a failover fits into it."""

SESSIONS_LISTED_MAX: Final = 512
"""Named sessions in an answer: with the longest names and identities it is about 200 KiB."""

RPC_TIMEOUT_MAX_S: Final = 60.0
"""A longer deadline is cut to this: a request that waits holds memory in every store it passed."""

DEADLINE_MARGIN_S: Final = 0.2
"""A typed answer leaves so long before the caller's own deadline: a round trip over a continent."""

DEADLINE_MARGIN_SHARE: Final = 0.2
"""The margin is no more than this share of what the caller has left."""

CONCURRENT_RPCS_MAX: Final = 20_000
"""Calls that a store serves at a time; gRPC refuses more with RESOURCE_EXHAUSTED."""

CONFIG_FILE_BYTES_MAX: Final = 1024 * 1024
"""A configuration, or a ring of keys: the longest has some kilobytes."""

RELOAD_READ_S: Final = 30.0
"""So long a reload waits for its files. A file system that is gone must not end all reloads."""

GRPC_MESSAGE_BYTES_MAX: Final = READ_BYTES_MAX + BLOCK_BYTES_MAX + 1024 * 1024
"""Bytes of the largest Read answer, which its last block may overshoot, plus the fields around the
blocks."""

REPORT_BYTES_MAX: Final = GRPC_MESSAGE_BYTES_MAX - 1024
"""Bytes of the largest GetClusterReport, about 26 000 logs. Of a larger cluster the logs are listed
page by page (ListShards)."""

TRUNCATION_PAGE_REPLICAS: Final = 500
"""Replicas in one answer of GetTruncation: about 100 KiB, made in some milliseconds."""

REPORT_ROWS_PER_SLICE: Final = 256
"""Rows of a report that are encoded at a stretch, in less than a millisecond."""

DIGEST_CALL_S: Final = 1.0
"""After so long a Digest answers with what it has, at the next end of a piece: half of the time
that a client gives its first attempt."""

STREAM_MESSAGE_BYTES_GOAL: Final = 1024 * 1024
"""Bytes of one of Follow's answers: large enough that a call's cost vanishes, small enough to be
fair."""

CONNECTION_CALLS_MAX: Final = 5120
"""Calls on one connection: the streams of an identity and a thousand others. Beyond it gRPC's
clients wait. As many calls may begin before SETTINGS are acknowledged."""

CLIENT_HANDSHAKE_TIMEOUT_S: Final = 8.0
"""A client has finished TLS by then. Our client waits as long: a store that works for hundreds of
others, on a core that it shares, may need seconds, and whoever is cut begins anew."""

SETTINGS_TIMEOUT_S: Final = 5.0
"""A connection whose client has not acknowledged SETTINGS by then is closed: until then gRPC holds
it to no bound of ours."""

# --- calls that wait for their turn ---------------------------------------------------------------

ACCEPTS_OUTSTANDING: Final = 1024
"""Calls that gRPC's core is asked for at a time: more than usually arrive in a turn of the loop, so
that none is queued in the core behind those of somebody else. They take 1.3 MiB at rest."""

WAKE_UPS_PER_TURN: Final = 4096
"""Wake-ups of gRPC's poller that one turn of the loop takes: several for each of
ACCEPTS_OUTSTANDING calls. They are bytes of a socket."""

CALLS_BEGUN_MAX: Final = 64
"""Unary calls that are begun at a time while several identities call, divided among them: enough
for a commit group, and few enough that the loop gets round to everybody within milliseconds."""

CALLS_BEGUN_MIN: Final = 4
"""An identity may always have so many calls begun, however many others there are."""

CALL_PLACE_S: Final = 0.25
"""A call that lasts longer makes room for the next one: it waits for something, or the disk is
slow."""

CALL_ALONE_S: Final = 5.0
"""An identity is held back by nothing when no other one has called for so long: who calls more
seldom has calls that are not worth holding others back for."""

CALL_LINE_LOOK_S: Final = 0.05
"""Between two looks for calls that last and for calls without time; only while a call waits."""

CALL_LINE_CALLS_MAX: Final = 16384
"""Calls of all identities that wait in their lines: all that two identities may have
(IDENTITY_RPCS_MAX), so that one cannot fill the lines, and less than CONCURRENT_RPCS_MAX."""

CALL_LINE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of the requests that wait. Each is in memory as it was parsed."""

IDENTITY_CALL_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The same of one identity: a thousand blocks of the usual 64 KiB, eight of the largest, and a
quarter of CALL_LINE_BYTES_MAX."""

CALL_LINE_RETRY_MS: Final = 200
"""After so long the client of a call that could not wait should ask again."""

# --- answers that wait to be taken ----------------------------------------------------------------

ANSWER_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of waiting answers of all callers. An answer that waits is in memory up to three times: as
it was read, as it was encoded, as gRPC holds it."""

IDENTITY_ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of waiting answers of one identity: seven of the largest answers, a hundred of the usual
ones, and a quarter of ANSWER_BYTES_MAX, so that an identity that takes nothing leaves room for
others."""

ANSWER_CATCH_UP_SHARE: Final = 0.5
"""The part of ANSWER_BYTES_MAX, and of an identity's, that answers from the disk may take: whoever
reads old entries and takes no answers leaves room for readers at the tail, its own included."""

ANSWER_SMALL_BYTES: Final = 16 * 1024
"""Answers below it are not counted: IDENTITY_RPCS_MAX such answers are as much as an identity may
have."""

ANSWER_WAIT_S: Final = 2.0
"""How long a read waits for its part of the budget: answers that are taken leave it in far less."""

ANSWER_WAITERS_MAX: Final = 8192
"""Reads that wait for their part of that budget; each is a request of a few bytes."""

ANSWER_RETRY_MS: Final = 200
"""After so long the client of a read that got no part of the budget should ask again."""

ANSWER_STALL_S: Final = 30.0
"""An answer that is not taken for so long, plus the time it would take at ANSWER_BYTES_PER_S_MIN,
is dropped, and its call is cut."""

ANSWER_BYTES_PER_S_MIN: Final = 256 * 1024
"""The slowest reader that is served."""

HEADERS_COLLECT_S: Final = 0.2
"""So long after calls with too many headers were refused, what is left of them in memory is
collected."""

# --- requests that are not whole ------------------------------------------------------------------

STREAM_AHEAD_BYTES: Final = 256 * 1024
"""Bytes that a client may send on a call before it is asked for them: a window of HTTP/2."""

UNDELIVERED_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Bytes of all clients that were sent longer than UNDELIVERED_AGE_S ago, and that no call has
received."""

IDENTITY_UNDELIVERED_BYTES_MAX: Final = 512 * 1024 * 1024
"""The undelivered bytes of one identity: sixty of the largest blocks on their way over slow links,
and half of UNDELIVERED_BYTES_MAX. A loader with 32 streams at full speed has a third of it under
way."""

UNDELIVERED_AGE_S: Final = 1.0
"""How long bytes may wait before they count as undelivered. A gigabit link brings a block of the
largest size in a tenth of it. An excess that lasts for less is not seen, so an attacker can add
what a link carries meanwhile."""

UNDELIVERED_LOOK_S_MAX: Final = 2.0
"""From the end of a look at undelivered bytes to the next one at the most, however long it took: of
8192 connections it takes a fifth of a second."""

HALF_CALLS_SWEEP_S: Final = 1.0
"""Between two looks for calls that ended without a request."""

UNDELIVERED_FRAMING: Final = 128
"""One byte of frames and TLS records is expected with so many bytes of messages; where records are
full, it is one byte with 500."""

UNDELIVERED_MESSAGE_BYTES: Final = 1024
"""Bytes that come with a message whatever its size: headers, the call's end, window updates."""

UNDELIVERED_ANSWERS: Final = 256
"""One byte of window updates is expected for so many bytes of answers."""

UNDELIVERED_PING_BYTES_PER_S: Final = 64
"""Bytes of pings: one in a TLS record each second, which is as many as a client may send."""

# --- descriptors and connections ------------------------------------------------------------------

DESCRIPTORS_MAX: Final = 1024 * 1024
"""Descriptors that a store asks the system for at most, even where there is no limit."""

DESCRIPTORS_WANTED: Final = 16_384
"""A store that gets fewer descriptors says so: clients, peers and disks share what there is."""

DESCRIPTORS_MIN: Final = 256
"""A store that gets fewer descriptors does not start: the first dozen clients could stop its
disks."""

DESCRIPTORS_OWN: Final = 192
"""Descriptors of the store itself: listeners, pollers, logs, the audit log, name look-ups, and the
connections of the admin port."""

DESCRIPTORS_OF_DIRECTORY: Final = 128
"""Descriptors of one data directory: LevelDB keeps 64 tables open; the rest is for segments,
exports and what is rewritten."""

DESCRIPTORS_OF_PEERS: Final = 2048
"""Descriptors of the peer port: connections of stores, accepted and dialled, and handshakes of
strangers."""

CLIENT_CONNECTIONS_MAX: Final = 8192
"""Connections to the client port in all; a handshake takes some 50 KiB."""

IDENTITY_CONNECTIONS_MAX: Final = 1024
"""Connections of one identity: a Spark job with a thousand executors, each with one connection."""

ADDRESS_CONNECTIONS_MAX: Final = 2048
"""Connections from one address: two such jobs behind one router."""

ADDRESS_HALF_OPEN_MAX: Final = 128
"""Connections from one address on which there was no call so far. A client of ours makes its first
call at once."""

HALF_OPEN_MAX: Final = 1024
"""Connections from all addresses on which there was no call so far: an eighth of all
connections."""

CONNECTIONS_LOOK_S: Final = 0.1
"""Between two looks at who is connected. A flood may exceed its bound by what comes in between;
FLOOD_EXCESS_MAX says when the kernel lets less come. CLIENT_CONNECTIONS_MAX, which gRPC keeps,
holds at any moment."""

CONNECTIONS_LOOK_S_MIN: Final = 0.02
"""Between two looks while many connect."""

CONNECTIONS_LOOK_S_MAX: Final = 0.5
"""From the end of a look to the next one at the most, however long it took: so late the kernel may
be told of a flood."""

ARRIVALS_MAX: Final = 16
"""After so many arrivals a look comes early: an eighth of ADDRESS_HALF_OPEN_MAX."""

FLOOD_EXCESS_MAX: Final = 32
"""Connections of one address that were cut for a bound and are not closed yet. Above it the kernel
drops most of those that this address begins: a quarter of ADDRESS_HALF_OPEN_MAX."""

FLOOD_HALVINGS_MAX: Final = 10
"""One new connection in 2 ** 10 passes in the worst flood. The share doubles with each look that
comes after it, so that a second or a few after its end everything passes."""

FLOOD_ADDRESSES_MAX: Final = 24
"""Addresses of which the kernel drops connections at a time; those beyond it are bounded by the
looks alone. The kernel goes through the list for every new connection. Kernels before 6.9 let a
socket have 20 KiB for two such lists, and an IPv6 address takes 400 bytes of each."""

CONNECTIONS_REST_S: Final = 1.0
"""While nobody is connected a look comes so seldom; who connects or calls ends the rest."""

CONNECTIONS_TELL_S: Final = 10.0
"""Between two lines in the log about connections that were cut."""

# --- the admin port -------------------------------------------------------------------------------

READY_REASONS_MAX: Final = 100
"""Reasons in one answer: when a thousand shards have no leader, the first hundred say it all."""

ADMIN_THREADS: Final = 4
"""Requests of the admin port answered at once; each waits for the loop most of its time."""

ADMIN_CONNECTIONS_MAX: Final = 64
"""Connections to the admin port: Prometheus, a few browsers, probes."""

ADMIN_ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of answers of the admin port that wait for their readers: half a MiB of each connection."""

ADMIN_PATIENCE_S: Final = 30.0
"""A client of the admin port has so long for the rest of a request, and to take an answer: a line
of 33 kB/s takes a MB in it."""

ADMIN_CONNECTION_AGE_S: Final = 600.0
"""After so long the answer to the next request is a connection's last one: forty scrapes."""

ADMIN_REQUEST_BYTES_MAX: Final = 16 * 1024
"""Header and body of a request to the admin port; nothing there takes a body."""

ADMIN_CALLER_REMEMBERED_S: Final = 300.0
"""A caller that the admin port let in is let in again for so long while the event loop, which would
decide, is stuck: some scrapes of Prometheus."""

ADMIN_CALLERS_REMEMBERED_MAX: Final = 256
"""Callers that are remembered for that."""

ADMIN_LOOP_WAIT_S: Final = 5.0
"""How long a request of the admin port waits for the event loop before it says that it is stuck."""

CATCH_UP_LOOK_S: Final = 2.0
"""Between two looks at a member that is behind that say how fast it comes nearer: a message or two
more or less do not count then."""

ADMIN_STATUS_AGE_S: Final = 0.5
"""A status up to this old is given out again, so that several pages and scrapes at once cost one
status."""

ADMIN_CLUSTER_AGE_S: Final = 1.0
"""A picture of the whole cluster up to this old is given out again: making one asks every store."""

ADMIN_PEER_WAIT_S: Final = 1.5
"""How long one store is given to answer when the picture of the cluster is made; it is below the
page's patience."""

ADMIN_STORES_AT_ONCE: Final = 32
"""Stores asked at the same time for that picture."""

EVENTS_KEPT: Final = 256
"""Newest events of a store that the admin port shows; older ones are in the log."""

ADMIN_ROWS_PER_SLICE: Final = 128
"""Shards of that picture that are made at a stretch, in about 3 ms; all of 10,000 take 200 ms."""

ADMIN_SERVICES_SHOWN: Final = 512
"""Services of the database that the admin port shows; `logctl services` has all. Each may have
HAKEEPER_SERVICE_BYTES_MAX of labels, so all of them could be 16 MB every two seconds."""

ADMIN_SHARDS_SHOWN: Final = 100
"""Rows of shards that a page gets at once, 80 kB; all of 10,000 were 8 MB every two seconds."""

ADMIN_FILTER_CHARS_MAX: Final = 200
"""Characters of the text that those rows are to contain; each row is searched for it."""

ADMIN_RATE_SPAN_S: Final = 60.0
"""Two pictures of the cluster further apart give no records per second: a mean of that is not now.
A hidden page asks every 10 s."""

ADMIN_FEED_EVENTS: Final = 256
"""Newest events of the cluster that the admin port shows, about 60 kB; `logctl events` and watchers
get older ones."""

HISTORY_FINE_S: Final = 10.0
"""Between two points of a store's newest history. The store looks at itself every 5 s anyway."""

HISTORY_FINE_POINTS: Final = 360
"""Such points: an hour, of which a person sees what led to what they look at."""

HISTORY_COARSE_S: Final = 120.0
"""Between two points of a store's longer history."""

HISTORY_COARSE_POINTS: Final = 720
"""Such points: a day. Both kinds together are 100 kB of a store's memory."""

HISTORY_SHARD_S: Final = 60.0
"""Between two points of the history of a log."""

HISTORY_SHARD_POINTS: Final = 60
"""Such points: an hour."""

HISTORY_SHARDS_MAX: Final = 1024
"""Logs of a store with a history, 2 MB; of more, those that something was appended to last."""

ADMIN_CLAIMS_SHOWN: Final = 100
"""Holds, writers or sessions in one answer, 40 kB; the next page begins behind the last of them."""

ADMIN_CLAIMS_SLICE: Final = 64
"""Logs and their rows that are looked at for those between two turns of other work, about a
millisecond; all rows of one log are looked at in one turn, which takes 20 at most."""

ADMIN_SESSIONS_SHOWN: Final = 100
"""Named sessions that the page of one log shows; `logctl session list` has all."""

ADMIN_RECORDS_SHOWN: Final = 100
"""Records in one answer of the record browser; with ADMIN_VALUE_BYTES_SHOWN of each 400 kB."""

ADMIN_RECORDS_BYTES: Final = 256 * 1024
"""Bytes of blocks that such an answer is read from, beyond which its last block may reach."""

ADMIN_VALUE_BYTES_SHOWN: Final = 2048
"""Of a value, a key or a header that the record browser shows; a person reads no more."""

ADMIN_OPENED_BYTES_MAX: Final = 1024 * 1024
"""What a compressed block may be opened to for the record browser, in about 5 ms of the loop; of a
larger one only LSNs and sizes are shown."""

ADMIN_HEADERS_SHOWN: Final = 32
"""Headers of one record that the record browser shows."""

ADMIN_GRANTS_SHOWN: Final = 100
"""Grants in one answer, 40 kB."""

ADMIN_FINDINGS_SHOWN: Final = 100
"""Findings in one answer, the worst ones, 40 kB: a thousand logs with a hold are a thousand."""

ADMIN_WORK_SHOWN: Final = 200
"""Operators, wishes, drains or members that catch up in one answer; `logctl repairs` has all."""

EVENTS_PER_STATUS: Final = 50
"""Newest events that travel with a status to other stores."""

METRIC_PINS_MAX: Final = 5
"""Replicas of a data directory that are named as the ones that keep its oldest segment."""

METRIC_SHARDS_MAX: Final = 200
"""Replicas with series of their own; a store with more shows only those that something is wrong
with, and counts the others in logservice_shards_without_series. At this many a scrape takes 60 ms
and 230 kB."""

METRIC_LAG_ENTRIES: Final = 10_000
"""A follower further behind is wrong; it is what the alert LogServiceFollowerLags asks for."""

SLOW_DURABLE_WRITE_US: Final = 100_000
"""A p99 of durable writes above it is an event: a tenth of the default election timeout."""

HAKEEPER_SILENT_S: Final = 30.0
"""A store that has no answer of HAKeeper for so long says so: thirty heartbeats."""

EVENT_WATCHERS_MAX: Final = 256
"""Watchers of the cluster's events at one store, whoever they are; each may keep a message of
EVENTS_PER_MESSAGE_MAX events in memory, about 80 KB."""

EVENT_WATCHERS_PER_IDENTITY_MAX: Final = 32
"""Of one identity, so that nobody takes all the places."""

EVENTS_PER_MESSAGE_MAX: Final = 256
"""Events in one message to a watcher."""

EVENTS_POLL_S: Final = 0.2
"""How often a store with watchers asks for new events; so an event is told that much later."""

EVENTS_CONFIRM_S: Final = 5.0
"""How often a store with watchers asks a majority of HAKeeper for the newest event, and tells a
watcher that nothing has happened."""

EVENTS_SILENT_S: Final = 20.0
"""Without such an answer for so long the watchers are sent to other stores; an election of shard 0
takes a few seconds."""

VISIT_OVERDUE_S: Final = 60.0
"""Visits of the truncation worker are overdue when none has ended for three intervals and this. A
visit of thousands of replicas on a busy disk takes seconds; a minute fills no disk that was below
its mark."""

ARCHIVER_LINE_BYTES_MAX: Final = 65536
"""Of a line that the archiver of a store says; what is longer is not logged."""

ARCHIVER_PAUSE_S_MAX: Final = 60.0
"""An archiver of a store that does not stay is begun again after a second, two, four, and at most
this: what stops it is a configuration, a key, a folder, and takes a person."""

LOG_LEVEL_S_MAX: Final = 604_800
"""For how long a store may be told another log level, a week: what is wanted longer belongs
into its configuration, where people look."""

LOG_WAITING_BYTES_MAX: Final = 1024 * 1024
"""Bytes of log lines that wait for stderr to take them, some thousand lines; what comes beyond is
counted."""

LOG_LAST_LINES_S: Final = 1.0
"""A process that ends waits for so long until its last lines are taken: a reader that reads takes
them in milliseconds."""

MEMORY_FULL_TELL_S: Final = 60.0
"""For how long a store has an alarm after somebody had to pay for a full part of its memory: a
person who looks every minute sees it."""

# --- the command line -----------------------------------------------------------------------------

COMPLETION_TIMEOUT_S: Final = 1.0
"""How long the shell waits for what the cluster knows of what may stand next, whatever has to be
asked for that; a person who pressed a key then goes on typing."""

COMMAND_TIME_LEFT_MIN_S: Final = 0.1
"""A call of `logctl` is given so much at least when the command's time is over. It fails in that
time, and says how."""

COMPLETION_NAMES_MAX: Final = 100
"""Names that completion offers; nobody reads more, and what is typed next narrows them."""

DECLARED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of a file that declares a cluster: HAKEEPER_SHARDS_MAX logs with a KiB each."""

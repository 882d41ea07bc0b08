"""Hard bounds are replicated or on disk. Changing one is a format change.

Their hash is in every data directory's identity file, and a store refuses to start on a directory
with another hash. Each cluster version has bounds of its own (`_HARD`): those of the earlier ones
are what released programs have, and stay. A bound that is added here goes into the list of the
newest cluster version, unless it follows from others there.
"""

from __future__ import annotations

from typing import Final

from logservice.checksum import crc32

# --- logs -----------------------------------------------------------------------------------------

BLOCK_RECORDS_MAX: Final = 1_000_000
"""Records in a block. Bounds the offsets column at 4 MB."""

BLOCK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a block with its header. Client, leader and followers hold a block whole in memory."""

BLOCK_PLAIN_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of a block's columns once a reader opens it: the memory that it needs, whoever wrote it."""

BLOCK_RATIO_MAX: Final = 255
"""Times that the columns may be larger than the body: what lz4 reaches. Beyond it a few bytes could
claim a million LSNs, each a row of an archive."""

BLOCK_HEADERS_MAX: Final = 1_000_000
"""Headers of all records of a block together: as many as records. Stores never count them."""

RECORD_BYTES_MAX: Final = BLOCK_BYTES_MAX - 64
"""Bytes of one record: what fits a block of one record."""

ENTRY_PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Payload of one entry: one block of the largest size plus what waited with it."""

SESSION_WINDOW: Final = 64
"""Sequences of a session whose LSNs are remembered; at least what a client may have in flight."""

SESSIONS_MAX: Final = 4096
"""Sessions of a shard. When the table is full, the identity with the most sessions gives one up
(`rsm.sessions`)."""

SESSIONS_PER_OWNER_MAX: Final = SESSIONS_MAX // 2
"""Sessions of one identity, so that none can fill the table alone. In plaintext all sessions belong
to one identity."""

SESSION_IDLE_ENTRIES: Final = SESSIONS_PER_OWNER_MAX // 2
"""A session unused for this many log entries may make room for a newer one of the same identity.
The number is below SESSIONS_PER_OWNER_MAX, because opening a session is an entry: a client that
opens one after another and never uses them makes room by itself instead of locking its siblings
out."""

NAMED_SESSIONS_MAX: Final = 4096
"""Named sessions of a shard. They give way to nothing, so this is apart from SESSIONS_MAX: jobs
take no client's session, and clients no job's."""

NAMED_SESSIONS_PER_OWNER_MAX: Final = NAMED_SESSIONS_MAX // 2
"""Named sessions of one identity that is alone. It has at most as many as are left for all others,
so that nobody is locked out: the next one gets half of this, and so on."""

SESSION_EPOCH_BITS: Final = 32
"""Blocks of one epoch of a named session, as a power of two: each is an entry, and four thousand
million of them take months at the rate of a disk."""

SESSION_EPOCH_MAX: Final = 2**31 - 1
"""Newest epoch of a named session: one every second for 68 years. It leaves the upper half of the
sequences to what is above every epoch."""

APPEND_TIME_US_MAX: Final = 2**53
"""Latest append time that a clock may give: in the year 2255. A leader whose clock is beyond that
counts on by single microseconds, for which the 2^63 of the format are enough."""

HOLDS_MAX: Final = 256
"""Named holds of a shard."""

HOLDS_PER_OWNER_MAX: Final = HOLDS_MAX // 2
"""Holds of one identity. Holds are not evicted, so this keeps one identity from taking them all."""

HOLD_TTL_S_MIN: Final = 5
"""Shortest time to live of a hold. Its owner renews it three times in that time, so one lost answer
and a change of the leader cost nobody a hold; and a renewal is an entry of the log."""

HOLD_TTL_S_MAX: Final = 7 * 86_400
"""Longest time to live of a hold: a week. Every new leader counts anew, so a hold with a longer one
might never end. What is needed for longer is a hold without one, and shows as such."""

READER_HOLD_TTL_S_MAX: Final = 6 * 3600
"""Longest time to live of a reader's hold, which has one always: a job that reads for longer renews
it, or sets it further up."""

READER_HOLDS_PER_OWNER_MAX: Final = 16
"""Readers' holds of one identity in a shard: its queries over the log."""

READER_HOLDS_MAX: Final = HOLDS_MAX // 2
"""Readers' holds of a shard, so that there is room for those of backups, archives and mirrors."""

NAME_BYTES_MAX: Final = 128
"""Names of holds, writers' holders, shards, stores."""

IDENTITY_BYTES_MAX: Final = 512
"""An identity in a command: a client certificate's URI, which is three names and what is between
them."""

REJECTED_RANGES_MAX: Final = 65_536
"""Gaps above the truncation LSN that a shard remembers; what would add one more gets BUSY."""

TIMESTAMPS_PER_CALL_MAX: Final = 1_000_000
"""Largest range of one AllocateTimestamps."""

LINEAGES_MAX: Final = 2**31 - 1
"""Forks of one log, so that a writer epoch stays below 2 ** 63."""

LINEAGE_EPOCH_BITS: Final = 32
"""Writer epochs that one lineage may grant, as a power of two: each grant is an entry, and four
thousand million of them take months at the rate of a disk."""

LINEAGE_TIMESTAMP_STEP: Final = 2**48
"""How far a fork moves the timestamps on, so that none that a lost entry gave out comes again. That
is 281 million calls of the largest size, and still leaves room for 32 767 forks."""

RESTORED_LSN_MAX: Final = 2**48
"""The end of a log that is restored: at a million records a second, nine years. What lies below the
base is taken up by gaps of RESTORED_GAP_LSNS_MAX, so this also bounds their number."""

RESTORED_GAP_LSNS_MAX: Final = 2**31 - 1
"""LSNs of one gap that is restored: an entry counts its LSNs in 32 bits. A log that begins at
RESTORED_LSN_MAX begins with 131 073 of them."""

RESTORED_GAP_BYTES: Final = 112
"""The payload of an entry with a restored gap and nothing else. Only an entry that is no larger,
and so has no room for a record, may count more LSNs than ENTRY_RECORDS_MAX."""

RESTORED_LINEAGES_MAX: Final = 2**16
"""The number of a restored log's lineage. Each is a disaster that a person answered; an archive
that says more of them lies, and must not use up those that the log may need (LINEAGES_MAX)."""

RECOVERED_NUMBER_STEP: Final = 2**20
"""How far a recovery of shard 0 moves on what it gives out one by one, and what counts changes: at
a hundred of them in a second, what three hours gave out."""

RECOVERED_REPLICA_STEP: Final = 2**32
"""How far above all replica ids of the evidence the id of a recovered replica is at least, and
those that follow: no cluster gives out so many."""

RECOVERED_ID_STEP: Final = 2**40
"""The same for the ids of AllocateIds, which come in ranges."""

GIVEN_OUT_MAX: Final = 2**61
"""A number that another cluster says to have given out. An archive that says a higher one lies, and
must not use up the numbers of the cluster that it is restored into."""

COMMAND_BYTES_MAX: Final = 4 * 1024 * 1024
"""A state machine command; HAKeeper's largest is the heartbeat of a store with many replicas."""

# --- HAKeeper (every replica of shard 0 must decide alike) ----------------------------------------

HAKEEPER_TICKS_PER_S: Final = 10
"""The leader of shard 0 proposes one tick per 100 ms."""

HAKEEPER_TICKS_PER_ENTRY_MAX: Final = 10
"""Ticks of one entry: a second. While nothing is under way, one entry each second, and one write on
three disks, is enough to keep the time."""

HAKEEPER_QUIET_SILENCE_TICKS: Final = 30
"""A store that was not heard for three heartbeats may be missed soon: ticks come one by one."""

HAKEEPER_QUIET_TIMEOUT_TICKS: Final = 50
"""The shortest store timeout under which ticks are saved up: the silence above, and two entries of
ticks. One entry makes a heartbeat look older than it is, the other passes before anybody looks
again."""

HAKEEPER_FIRST_REPLICA_ID: Final = 1024
"""Ids below are those of shard 0's initial replicas: they exist before ids are allocated."""

HAKEEPER_STORES_MAX: Final = 1024
"""Stores of a cluster. It also bounds the admissions of stores that are still expected."""

HAKEEPER_APPLICANTS_MAX: Final = 64
"""Stores that were turned away and are remembered, for a person to see."""

HAKEEPER_SERVICES_MAX: Final = 4096
"""Services in the whole cluster."""

HAKEEPER_SERVICES_PER_OWNER_MAX: Final = 512
"""Services of one client identity, so that nobody crowds out the services of others."""

HAKEEPER_SERVICE_BYTES_MAX: Final = 4 * 1024
"""Bytes of name, kind, address and labels of one service, and of the labels of one store. So all
services take at most 16 MiB of the state, which travels in every snapshot of shard 0."""

HAKEEPER_STORE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of what one store reports, counted roughly; ten thousand replicas take about half of it."""

HAKEEPER_SHARDS_MAX: Final = 65_536
"""Shards of a cluster: their reports must fit the state of one shard that is snapshotted whole."""

HAKEEPER_DELETED_RANGES_MAX: Final = 65_536
"""Ranges of ids of deleted logs, for ever: about 1 MiB of the state. Ids are given out in their
order, so only logs that outlive their neighbours make ranges."""

HAKEEPER_DELETED_PER_REPLY_MAX: Final = 256
"""Deleted logs named in one heartbeat's answer; the others follow with the next."""

HAKEEPER_CREATIONS_REMEMBERED: Final = 1024
"""Requests for logs that are recognised when they are repeated: an hour's worth, if a log is made
every few seconds."""

HAKEEPER_SHARD_LABEL_BYTES_MAX: Final = 1024
"""Bytes of all labels of one log; with HAKEEPER_SHARDS_MAX logs they take at most 64 MiB."""

HAKEEPER_SHARDS_PER_PAGE_MAX: Final = 256
"""Logs in one page of a listing: it is made in one piece on the event loop."""

HAKEEPER_REPLICAS_MAX: Final = 9
"""Replicas of one shard: more cost latency and gain nothing."""

HAKEEPER_LABELS_MAX: Final = 64
"""Labels of a store or a service."""

DATA_DIRECTORIES_MAX: Final = 16
"""Data directories of a store. Each has a writer thread and its own segments, and every heartbeat
reports them all."""

HAKEEPER_OPERATORS_MAX: Final = 16
"""Membership repairs at once, so that a lost store does not make every shard catch up together. A
cluster of more stores has more (HAKEEPER_CHANGES_MAX)."""

HAKEEPER_CHANGES_MAX: Final = 128
"""Membership repairs at once in a cluster of more stores than HAKEEPER_OPERATORS_MAX, which has one
for each live store from cluster version 2 on."""

HAKEEPER_OPERATORS_PER_STORE_MAX: Final = 4
"""Learners that catch up on one store at once: live shards share its disk and network."""

HAKEEPER_MOVES_MAX: Final = 8
"""Replicas on their way at once only to be better placed: half of HAKEEPER_OPERATORS_MAX, so that
repairs that begin meanwhile do not wait."""

HAKEEPER_MOVES_PER_STORE_MAX: Final = 2
"""Replicas that leave a store, or come to it, only to be better placed: half of what a repair may
bring, so that a repair that begins meanwhile finds room."""

HAKEEPER_BALANCE_LEADS_MAX: Final = 8
"""Leaderships handed over at once only to even their numbers: each costs its shard one round trip,
and after a store has come back all of them go to that one."""

HAKEEPER_BALANCE_TICKS: Final = 20
"""Between two looks whether replicas should be balanced, and between two at the leaders: two
heartbeats, so that every look sees what the one before began."""

HAKEEPER_BALANCE_SHARDS: Final = 64
"""Shards of which one look finds out whether their voters are as far apart as they can be: 0.3 ms
when they are."""

HAKEEPER_BALANCE_LEADERS: Final = 512
"""Leaders that one look for better ones passes: 2 ms, as most of them are where they should be."""

HAKEEPER_STEADY_TICKS: Final = 300
"""A store gets leaders when it was heard without a gap for 30 s: longer than a crash loop needs to
crash again."""

HAKEEPER_GAP_TICKS: Final = 50
"""A store that was not heard for 5 s was away: five heartbeats."""

HAKEEPER_LEAD_REST_TICKS: Final = 600
"""A leadership that was handed over to balance leaders, or to bring it home, is not handed over for
that again for 60 s. So a zone that comes and goes costs each of its shards at most one hand-over a
minute."""

HAKEEPER_PLAN_MOVES_MAX: Final = 256
"""Moves that a dry run lists: as many as a person reads, and a bound for what it costs."""

HAKEEPER_COMMANDS_PER_REPLY_MAX: Final = 64
"""Commands in one heartbeat's answer; the others follow with the next."""

HAKEEPER_QUEUE_MAX: Final = 1024
"""Commands queued for one service. HAKeeper's own commands for a store are bounded by the replicas
there."""

HAKEEPER_COMMAND_RETRY_TICKS: Final = 30
"""A step whose command was executed but whose effect is not reported is tried again after 3 s:
three heartbeats."""

HAKEEPER_IDLE_CHECK_TICKS: Final = 200
"""The checkers run at once when a report or the time changed something. While operators are under
way they run every HAKEEPER_OPERATOR_CHECK_TICKS. Otherwise, to be sure, they run every 20 s: a pass
over a thousand shards costs 15 ms."""

HAKEEPER_BALANCE_REPLICAS: Final = 32
"""Replicas of which one look finds out whether they should go to a store that has less: 5 ms."""

HAKEEPER_WISHES_PER_PASS_MAX: Final = 64
"""One-time wishes that one pass looks at, about 5 ms; the others follow in the next ticks."""

HAKEEPER_LOOKS_PER_PASS_MAX: Final = 64
"""Shards that one pass looks at from cluster version 2 on, about 3 ms; the rest follows in the next
ticks. While a third of 10 000 shards' voters are repaired most looks find that as many repairs are
under way as may be; with 128 such a tick made a quarter more calls."""

HAKEEPER_JUDGED_PER_VERB_MAX: Final = 256
"""Shards that one verb judges one by one, 36 µs each, because every replica of shard 0 has to come
to the same answer at the same entry."""

HAKEEPER_CHOICES_PER_PASS_MAX: Final = 8
"""Choices of a store that one pass makes before the rest waits for the next tick: each looks at all
stores, about 1 ms with 100 of them."""

HAKEEPER_DRIVES_PER_PASS_MAX: Final = 24
"""Operators that one pass drives from cluster version 2 on, about 2 ms, and as many new ones; the
others follow in the next ticks."""

HAKEEPER_DRIVES_IN_TURN_MIN: Final = 8
"""Of HAKEEPER_DRIVES_PER_PASS_MAX, how many are left for operators that nothing was heard of, so
that none of 400 waits for more than 50 passes."""

HAKEEPER_ERRANDS_MAX: Final = 256
"""STARTs and KILLs under way at once, from cluster version 2 on: a pass drives a bounded number of
operators, so more of them would only wait. Those of shard 0 do not count."""

HAKEEPER_OPERATOR_CHECK_TICKS: Final = 5
"""Between two runs of the checkers while operators are under way: half a heartbeat interval."""

HAKEEPER_BOOTSTRAP_TICKS_MAX: Final = 3000
"""A majority of each of the first shards must run 300 s after they were placed; else a person must
look."""

HAKEEPER_PLACEMENT_QUIET_TICKS: Final = 10
"""The first shards are placed when no new store was seen for one heartbeat interval, so that stores
that are started together all take part."""

HAKEEPER_CAUGHT_UP_ENTRIES: Final = 1024
"""A replica this close behind the commit index counts as caught up. The number is less than what a
busy shard replicates between two heartbeats; a replica of an idle shard reaches 0."""

HAKEEPER_LEADER_FRESH_TICKS: Final = 30
"""A swap is decided on a leader's report at most three heartbeats old."""

HAKEEPER_STANDSTILL_TICKS: Final = 600
"""A replica that lives, is behind and does not move for 60 s is flagged. A restart and an election
take seconds, the largest snapshot takes a minute at 4 MiB/s, and a replica that is served entries
moves between any two reports. The check runs every HAKEEPER_IDLE_CHECK_TICKS, so the flag may come
that much later."""

HEARTBEAT_STUCK_MAX: Final = 20
"""Replicas that a heartbeat names because they apply nothing. A person looks at the store, not at
each of them. From cluster version 2 on."""

HAKEEPER_STUCK_TICKS: Final = 3000
"""A voter that applies nothing for five minutes is moved to another store. A person can restart its
store in that time, which mends most of it and copies nothing."""

HAKEEPER_STUCK_REST_TICKS: Final = 36_000
"""One log is moved for that once in an hour, and not back to the same store before. A cause in the
log stops the successor, too, and must not cost copy after copy."""

HAKEEPER_STEP_FAILURES_MAX: Final = 5
"""A learner that could not be started this many times is given up; another store is tried."""

HAKEEPER_AVOID_TICKS: Final = 3000
"""A store that could not take a shard is not asked again for that shard for so long."""

HAKEEPER_SLOW_OPERATOR_TICKS: Final = 3000
"""A repair older than five minutes is flagged."""

HAKEEPER_SERVICE_TIMEOUT_TICKS: Final = 300
"""A service silent for 30 s is shown as expired. When the table is full, an expired one makes
room."""

HAKEEPER_BOOTS_REMEMBERED: Final = 8
"""Earlier process starts of a store whose late heartbeats are still recognised and ignored."""

HAKEEPER_FAILED_DIRECTORY_TICKS: Final = 600
"""A voter in a failed data directory waits 60 s for a restart of its store, which may be under way,
before it is swapped for an empty one on the same store."""

HAKEEPER_LEADS_MAX: Final = 32
"""Leaderships that HAKeeper hands over at once: each costs its shard one round trip, and one store
may have them all."""

HAKEEPER_LEAD_TICKS_MAX: Final = 100
"""A leadership that did not change hands within 10 s is tried anew, for perhaps another heir."""

HAKEEPER_LEARNERS_MAX: Final = 16
"""Standing learners of one log: the leader sends every record to each of them."""

HAKEEPER_LEARNER_LOST_TICKS: Final = 6000
"""A standing learner whose store is silent is given up after 10 min: nothing depends on it, and
another one copies the whole log."""

HAKEEPER_WISHES_MAX: Final = 1024
"""One-time wishes at once; a controller that moves more has to wait for some of them."""

HAKEEPER_ORDER_BYTES_MAX: Final = 4096
"""Bytes of one command for a service; a queue of HAKEEPER_QUEUE_MAX takes at most 4 MiB."""

HAKEEPER_ORDERS_MAX: Final = 4096
"""Commands for services in all queues, so at most 16 MiB of the state."""

HAKEEPER_ORDERS_REMEMBERED: Final = 4096
"""Requests for commands to services that are recognised when they are repeated: about 160 KiB of
the state."""

HAKEEPER_REPLAYED_PER_SERVICE_MAX: Final = 512
"""Logs that one service replays. All of them stand in each of its heartbeats, one a second."""

HAKEEPER_REPLAYED_MAX: Final = 16 * 1024
"""Pairs of a service and a log that it replays; at about 20 bytes they take 320 KiB of the
state."""

HAKEEPER_REPLAYED_PER_OWNER_MAX: Final = HAKEEPER_REPLAYED_MAX // 2
"""Of them, those of one identity, so that nobody crowds out the services of others."""

HAKEEPER_HOLD_ORDERS_MAX: Final = 1024
"""Holds of services that one answer asks a store to set, move or release; the next one asks for
others."""

HAKEEPER_REPLAY_STALL_TICKS: Final = 3000
"""A service that is alive, and for five minutes replays nothing of a log that has more, raises a
flag."""

HAKEEPER_TN_SHARDS_MAX: Final = 256
"""TN shards of a cluster: they are looked at together once a second, and shown whole."""

HAKEEPER_TN_STOP_TICKS: Final = 100
"""A process serves no TN shard any more 10 s after it sent the newest heartbeat that was answered;
the answers tell it so, in milliseconds."""

HAKEEPER_TN_ALIVE_TICKS: Final = 150
"""A process that was not heard for 15 s is taken to serve no TN shard any more. That is half as
long again as it needs to stop by itself, for clocks that run at different rates."""

HAKEEPER_TN_MOVE_TICKS: Final = 100
"""A process that was given a TN shard and does not say within 10 s that it serves it loses it."""

HAKEEPER_FEED_EVENTS_MAX: Final = 4096
"""Events of the cluster that are kept for watchers; with their texts at most about 1 MiB of the
state."""

HAKEEPER_EVENTS_PER_PAGE_MAX: Final = 1024
"""Events in one answer of HAKeeper."""

HAKEEPER_FEED_TEXT_MAX: Final = 200
"""Characters of the text of one event."""

HAKEEPER_FEED_TRUNCATION_TICKS: Final = 100
"""Truncations are told every ten seconds, one event for each log."""

HAKEEPER_FEED_TRUNCATIONS_MAX: Final = 64
"""Logs whose truncations are told at a time. So truncations alone take over ten minutes to push an
event out of the feed."""

HAKEEPER_FEED_FLAGS_PER_PASS: Final = 256
"""Flags that one pass of the checkers tells, so that a lost zone leaves other events in the
feed."""

HAKEEPER_WISHES_REMEMBERED: Final = 256
"""Wishes that have ended and whose result can still be asked for."""

HAKEEPER_WISH_TRIES_MAX: Final = 5
"""A move that was given up so often is not tried again: what stops it has to be looked at."""

HAKEEPER_GONE_INCARNATIONS_MAX: Final = 16_384
"""Data directories of forgotten stores that are remembered, so that none of them ever counts again:
those of HAKEEPER_STORES_MAX stores with as many directories as one may have."""

HAKEEPER_WISH_TICKS_MAX: Final = 7 * 86_400 * 10
"""A week: the longest for which repair may be off or a leader may be kept where it is. What is
needed for longer is a setting, and not an exception that somebody forgot."""

HAKEEPER_STORE_TIMEOUT_TICKS_MIN: Final = 20
"""Two heartbeats: with a shorter store timeout one lost heartbeat would cost a store its
replicas."""

HAKEEPER_STORE_TIMEOUT_TICKS_MAX: Final = 86_400 * 10
"""A day, as in the configuration."""

ACCESS_GRANTS_MAX: Final = 4096
"""Grants of the access list: the whole list goes out with a heartbeat's answer."""

ACCESS_DENIALS_MAX: Final = 1024
"""Denials of the access list; they go out with the grants."""

QUOTA_IDENTITIES_MAX: Final = 1024
"""Identities with a quota of their own: all of them go out with a heartbeat's answer."""

QUOTA_BYTES_PER_S_MIN: Final = 64 * 1024
"""Least rate of an identity that is set by verb. A larger request is taken, and owed: with the
largest the next one waits for two and a half minutes."""

QUOTA_BYTES_PER_S_MAX: Final = 2**40
"""A TiB per second is more than a store can."""

QUOTA_REQUESTS_PER_S_MAX: Final = 1_000_000
"""More requests per second than a store can."""

QUOTA_ADDRESS_CONNECTIONS_MIN: Final = 16
"""Least number of connections from an address that is set by verb: who has to take it back may be
behind the same address as those whom it is meant for."""

QUOTA_COUNT_MAX: Final = 1_000_000
"""Calls, streams or connections at a time: more than a store has descriptors."""

ACCESS_TEXT_BYTES_MAX: Final = 512
"""An identity or a scope: three names and what is around them."""

ALLOCATE_IDS_MAX: Final = 1_000_000
"""Largest range of one AllocateIds."""

ALLOCATE_KEYS_MAX: Final = 16_384
"""Counters that ids are allocated from."""

ALLOCATE_REQUESTS_REMEMBERED: Final = 16_384
"""Allocations whose request id still gives the same answer."""

SHARD_WEIGHT_DEFAULT: Final = 100
SHARD_WEIGHT_MAX: Final = 10_000
"""Shares of a log at a disk that more logs want than it takes: up to a hundred times the usual, as
far as whole numbers of bytes go."""

SHARD_BYTES_PER_S_MIN: Final = 64 * 1024
"""Least limit of a log's bytes: the largest block is paid for within minutes."""

RETENTION_AGE_S_MIN: Final = 60
"""Least age at which a log's policy lets records go: what is younger is being read. Clocks are
compared to within seconds, and whoever means days and writes seconds shall be told."""

RETENTION_AGE_S_MAX: Final = 100 * 366 * 86_400
"""The most: a century, so that ages in microseconds stay numbers of 64 bits."""

RETENTION_BYTES_MIN: Final = 16 * 1024
"""Least number of newest bytes that a log's policy keeps: whoever means MiB or GiB and writes a
bare number shall be told."""

RETENTION_RECORDS_MIN: Final = 100
"""Least number of newest records that a log's policy keeps, for the same reason."""

CATCH_UP_BYTES_PER_S_MIN: Final = 1024 * 1024
"""The least that stores may send to members that are far behind: a replica of 100 GiB comes within
a day and a half, and at less somebody would rather stop repairs. It is also the least rate of each
class of reads."""

CATCH_UP_BYTES_PER_S_MAX: Final = 16 * 1024 * 1024 * 1024
"""The most, of these and of reads: more than a store can read, so it is no limit."""

HAKEEPER_LIMITED_SHARDS_MAX: Final = 4096
"""Logs with limits or another weight than the usual: they go out with a heartbeat's answer."""

_HARD_1: Final = (
    BLOCK_RECORDS_MAX,
    BLOCK_BYTES_MAX,
    ENTRY_PAYLOAD_BYTES_MAX,
    SESSION_WINDOW,
    SESSIONS_MAX,
    SESSIONS_PER_OWNER_MAX,
    SESSION_IDLE_ENTRIES,
    HOLDS_MAX,
    HOLDS_PER_OWNER_MAX,
    NAME_BYTES_MAX,
    IDENTITY_BYTES_MAX,
    REJECTED_RANGES_MAX,
    TIMESTAMPS_PER_CALL_MAX,
    COMMAND_BYTES_MAX,
    HAKEEPER_TICKS_PER_S,
    HAKEEPER_FIRST_REPLICA_ID,
    HAKEEPER_STORES_MAX,
    HAKEEPER_APPLICANTS_MAX,
    HAKEEPER_SERVICES_MAX,
    HAKEEPER_SHARDS_MAX,
    HAKEEPER_REPLICAS_MAX,
    HAKEEPER_LABELS_MAX,
    HAKEEPER_SERVICES_PER_OWNER_MAX,
    HAKEEPER_SERVICE_BYTES_MAX,
    HAKEEPER_STORE_BYTES_MAX,
    DATA_DIRECTORIES_MAX,
    HAKEEPER_OPERATORS_MAX,
    HAKEEPER_OPERATORS_PER_STORE_MAX,
    HAKEEPER_COMMANDS_PER_REPLY_MAX,
    HAKEEPER_QUEUE_MAX,
    HAKEEPER_COMMAND_RETRY_TICKS,
    HAKEEPER_IDLE_CHECK_TICKS,
    HAKEEPER_OPERATOR_CHECK_TICKS,
    HAKEEPER_BOOTSTRAP_TICKS_MAX,
    HAKEEPER_CAUGHT_UP_ENTRIES,
    HAKEEPER_LEADER_FRESH_TICKS,
    HAKEEPER_STANDSTILL_TICKS,
    HAKEEPER_STEP_FAILURES_MAX,
    HAKEEPER_AVOID_TICKS,
    HAKEEPER_SLOW_OPERATOR_TICKS,
    HAKEEPER_SERVICE_TIMEOUT_TICKS,
    HAKEEPER_BOOTS_REMEMBERED,
    ACCESS_GRANTS_MAX,
    ACCESS_TEXT_BYTES_MAX,
    ALLOCATE_IDS_MAX,
    ALLOCATE_KEYS_MAX,
    ALLOCATE_REQUESTS_REMEMBERED,
)

_HARD: Final = {
    1: _HARD_1,
    2: (
        *_HARD_1,
        HAKEEPER_TICKS_PER_ENTRY_MAX,
        HAKEEPER_QUIET_SILENCE_TICKS,
        HAKEEPER_QUIET_TIMEOUT_TICKS,
        HOLD_TTL_S_MIN,
        HOLD_TTL_S_MAX,
        NAMED_SESSIONS_MAX,
        NAMED_SESSIONS_PER_OWNER_MAX,
        SESSION_EPOCH_BITS,
        SESSION_EPOCH_MAX,
        READER_HOLD_TTL_S_MAX,
        READER_HOLDS_PER_OWNER_MAX,
        READER_HOLDS_MAX,
        HAKEEPER_LEARNERS_MAX,
        HAKEEPER_LEARNER_LOST_TICKS,
        HAKEEPER_LEADS_MAX,
        HAKEEPER_LEAD_TICKS_MAX,
        HAKEEPER_WISHES_MAX,
        HAKEEPER_WISHES_REMEMBERED,
        HAKEEPER_WISH_TRIES_MAX,
        HAKEEPER_WISH_TICKS_MAX,
        HAKEEPER_GONE_INCARNATIONS_MAX,
        HAKEEPER_STORE_TIMEOUT_TICKS_MIN,
        HAKEEPER_STORE_TIMEOUT_TICKS_MAX,
        SHARD_WEIGHT_DEFAULT,
        SHARD_WEIGHT_MAX,
        SHARD_BYTES_PER_S_MIN,
        RETENTION_AGE_S_MIN,
        RETENTION_AGE_S_MAX,
        RETENTION_BYTES_MIN,
        RETENTION_RECORDS_MIN,
        CATCH_UP_BYTES_PER_S_MIN,
        CATCH_UP_BYTES_PER_S_MAX,
        ACCESS_DENIALS_MAX,
        QUOTA_IDENTITIES_MAX,
        QUOTA_BYTES_PER_S_MIN,
        QUOTA_BYTES_PER_S_MAX,
        QUOTA_REQUESTS_PER_S_MAX,
        QUOTA_ADDRESS_CONNECTIONS_MIN,
        QUOTA_COUNT_MAX,
        HAKEEPER_LIMITED_SHARDS_MAX,
        HAKEEPER_CHANGES_MAX,
        HAKEEPER_BALANCE_SHARDS,
        HAKEEPER_BALANCE_LEADERS,
        HAKEEPER_BALANCE_REPLICAS,
        HAKEEPER_WISHES_PER_PASS_MAX,
        HAKEEPER_LOOKS_PER_PASS_MAX,
        HAKEEPER_JUDGED_PER_VERB_MAX,
        HAKEEPER_CHOICES_PER_PASS_MAX,
        HAKEEPER_DRIVES_PER_PASS_MAX,
        HAKEEPER_DRIVES_IN_TURN_MIN,
        HAKEEPER_ERRANDS_MAX,
        HAKEEPER_PLACEMENT_QUIET_TICKS,
        HAKEEPER_CREATIONS_REMEMBERED,
        HAKEEPER_SHARD_LABEL_BYTES_MAX,
        HAKEEPER_DELETED_RANGES_MAX,
        HAKEEPER_DELETED_PER_REPLY_MAX,
        HAKEEPER_FAILED_DIRECTORY_TICKS,
        HAKEEPER_MOVES_MAX,
        HAKEEPER_MOVES_PER_STORE_MAX,
        HAKEEPER_BALANCE_LEADS_MAX,
        HAKEEPER_BALANCE_TICKS,
        HAKEEPER_STEADY_TICKS,
        HAKEEPER_GAP_TICKS,
        HAKEEPER_LEAD_REST_TICKS,
        HAKEEPER_ORDER_BYTES_MAX,
        HAKEEPER_ORDERS_MAX,
        HAKEEPER_ORDERS_REMEMBERED,
        HAKEEPER_REPLAYED_PER_SERVICE_MAX,
        HAKEEPER_REPLAYED_MAX,
        HAKEEPER_REPLAYED_PER_OWNER_MAX,
        HAKEEPER_HOLD_ORDERS_MAX,
        HAKEEPER_REPLAY_STALL_TICKS,
        HAKEEPER_TN_SHARDS_MAX,
        HAKEEPER_TN_STOP_TICKS,
        HAKEEPER_TN_ALIVE_TICKS,
        HAKEEPER_TN_MOVE_TICKS,
        HAKEEPER_FEED_EVENTS_MAX,
        HAKEEPER_FEED_TEXT_MAX,
        HAKEEPER_FEED_TRUNCATION_TICKS,
        HAKEEPER_FEED_TRUNCATIONS_MAX,
        HAKEEPER_FEED_FLAGS_PER_PASS,
        HEARTBEAT_STUCK_MAX,
        HAKEEPER_STUCK_TICKS,
        HAKEEPER_STUCK_REST_TICKS,
        LINEAGES_MAX,
        LINEAGE_EPOCH_BITS,
        LINEAGE_TIMESTAMP_STEP,
        RESTORED_LSN_MAX,
        RESTORED_GAP_LSNS_MAX,
        RESTORED_GAP_BYTES,
        RESTORED_LINEAGES_MAX,
        RECOVERED_NUMBER_STEP,
        RECOVERED_REPLICA_STEP,
        RECOVERED_ID_STEP,
        GIVEN_OUT_MAX,
        APPEND_TIME_US_MAX,
        BLOCK_PLAIN_BYTES_MAX,
        BLOCK_RATIO_MAX,
        BLOCK_HEADERS_MAX,
    ),
}
"""Cluster version -> the bounds that its data directories are written with."""


def hard_bounds_hash(cluster_version: int) -> int:
    """A number that identifies the hard bounds of a cluster version; it is stored in every data
    directory.
    """
    return crc32(repr(_HARD[cluster_version]).encode())

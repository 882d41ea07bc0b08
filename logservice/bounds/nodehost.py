"""Soft bounds of `nodehost/` (`transport` has more): requests, truncation, HAKeeper, repair."""

from __future__ import annotations

from typing import Final

# --- requests -------------------------------------------------------------------------------------

PENDING_PROPOSALS_MAX: Final = 65_536
"""Proposals of one replica waiting for their outcome; beyond it BUSY."""

PENDING_PROPOSAL_BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of one replica's proposals waiting for their outcome; beyond it BUSY."""

STORE_PROPOSAL_BYTES_MAX: Final = 512 * 1024 * 1024
"""The same of all replicas of a store; beyond its share a log gets BUSY. One log that nobody can
serve may still have all that is its own."""

UNWRITTEN_BYTES_MAX: Final = 768 * 1024 * 1024
"""Bytes of entries and snapshots of all replicas that are not on a disk yet. A disk takes seconds
for them, and a snapshot of the largest size finds room beside 256 MiB of others."""

INTAKE_TURN_BYTES: Final = 1024 * 1024
"""Bytes of requests that a shard moves into its log before the others have their turn: a commit
group of a fast disk."""

PACE_WAIT_S: Final = 1.0
"""Seconds for which appends wait in a store for the limit of their log; beyond it BUSY."""

CATCH_UP_BYTES_PER_S: Final = 16 * 1024 * 1024
"""What a store sends at most to members that are far behind. On two cores that three stores and a
client share, appends beside it keep 84 % of their rate; at 32 MiB/s 66 %, without a limit 43 %."""

CATCH_UP_BEHIND_BYTES: Final = 8 * 1024 * 1024
"""A member catches up when it lacks more than this. One that keeps up lacks what is on its way."""

CATCH_UP_TURN_BYTES: Final = 256 * 1024
"""Entries of one message to a member that catches up, and its turn before the others'. Some
milliseconds of an event loop: appends beside it wait for no more."""

CATCH_UP_BURST_S: Final = 0.05
"""Seconds of catch-up that are sent at once after a pause: a burst delays the appends beside it."""

CATCH_UP_READS_AT_ONCE: Final = 4
"""Reads of entries that are on the disk only, under way in a store: one is at the disk, and others
are being taken apart or sent. A read at the tail finds no more of them before it."""

READ_BURST_S: Final = 1.0
"""Seconds of a class's rate that its reads may take at once after a pause: at the least rate one
answer of the usual size."""

TICK_SLEEP_REPLICAS_MAX: Final = 64
"""With more replicas that count time a store sleeps through no tick: to ask each of them when it is
due costs what ticking it does."""

HAKEEPER_QUIESCE_MS: Final = 150
"""Shard 0 quiesces when it was idle for so long: longer than from one of HAKeeper's ticks to the
next while something waits for them, and with the default ticks before its first heartbeat."""

LISTENERS_MAX: Final = 16
"""Listeners to one NodeHost's events; each has a thread."""

LISTENER_EVENTS_MAX: Final = 1_024
"""Events that wait for one listener; those beyond are left out, and the listener is told how many.
A store of 100 shards that restarts has about as many."""

LISTENER_STOP_S: Final = 1.0
"""Seconds that a NodeHost that stops waits for a listener to take its last events."""

PENDING_READS_MAX: Final = 65_536
"""Linearizable reads of one replica waiting for their index."""

READ_BYTES_DEFAULT: Final = 1024 * 1024
"""Bytes of blocks in one Read answer, when the call does not say how many."""

READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of blocks in one Read answer; at least one block is returned whatever the limit. A store
may be configured to less, not to more: GRPC_MESSAGE_BYTES_MAX counts on it."""

QUERY_ENTRIES_MAX: Final = 1024
"""Entries in one answer to a query by index. Even of empty entries that is a fraction of a
millisecond of an event loop."""

# --- snapshots and truncation ---------------------------------------------------------------------

HOLD_LOOK_S: Final = 1.0
"""Between two looks at holds that may expire; a fifth of the shortest time to live."""

HOLD_EXPIRIES_PER_LOOK_MAX: Final = 512
"""Expiries of holds that one look proposes, about 20 ms; the next look proposes the rest."""

READER_HOLD_STANDS_S_MAX: Final = 6 * 3600.0
"""A reader's hold that stands at one LSN for so long lapses, renewed or not: as long as one that is
not renewed may live (READER_HOLD_TTL_S_MAX). Its reader does not get further."""

READER_HOLD_BYTES_MAX: Final = 8 * 1024 * 1024 * 1024
"""Bytes of its log behind which a reader's hold lapses: a reader that is so far behind would fill
disks that are others', too. At 10 MB/s it is a quarter of an hour's appends."""

RETENTION_POLICY_S_MAX: Final = 10.0
"""Records go by a policy only while HAKeeper has confirmed it within that time: ten heartbeats. A
policy that is taken back is over by then everywhere, and who frees nothing for a while loses
nothing."""

RETENTION_TOLD_S: Final = 600.0
"""Between two events about what retention lets go of one log: an event for each visit would be most
of what a store says."""

EXPORTED_SNAPSHOTS_MAX: Final = 20
"""Exported snapshots kept per replica: enough that the newest at or below the truncation LSN is
near it."""

EXPORT_FILE_BYTES_MAX: Final = 257 * 1024 * 1024
"""Bytes of an export to a path: PEER_SNAPSHOT_BYTES_MAX, and what says whose it is."""

SNAPSHOT_REQUEST_RETRY_S: Final = 0.1
"""When to ask again for a snapshot or a compaction while another request of the replica is under
way: most take one write."""

TRUNCATION_ALARM_BYTES: Final = 64 * 1024 * 1024
"""Truncation that stands still is an alarm when so many bytes could go: fewer may not free even
one segment."""

TRUNCATION_ALARM_VISITS: Final = 2
"""Visits of a replica without progress, one per interval, before the alarm (invariant T4)."""

TRUNCATION_REPLAY_ENTRIES_MAX: Final = 20_000
"""Entries that one visit of a replica replays at most, to make the snapshot that is aligned to the
truncation LSN: a third of a second of a thread. The next visit goes on where it ended."""

TRUNCATION_REPLAY_BYTES_MAX: Final = 64 * 1024 * 1024
"""The same in bytes of payload: as much as a disk reads in a second beside its other work."""

TRUNCATION_KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""What a leader keeps for members that are behind, beyond what clients want kept. A member that
needs more gets a snapshot first; the records above the truncation LSN it gets in any case."""

HAKEEPER_LOG_ENTRIES_MAX: Final = 20_000
"""Applied entries of shard 0 kept before it compacts itself: half an hour of ticks and
heartbeats."""

HAKEEPER_LOG_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of applied entries of shard 0 kept before it compacts itself: heartbeats of large stores
are large."""

WITNESS_ENTRIES_MAX: Final = 20_000
"""Entries of a witness's log, at 64 bytes each, that a visit leaves: what a member that was away
for some seconds has to hear again comes from the leader, so a witness needs none of them."""

# --- HAKeeper's shell -----------------------------------------------------------------------------

HEARTBEAT_TIMEOUT_S: Final = 3.0
"""A heartbeat's way to shard 0 and back; after that the next one is sent whatever became of it."""

HEARTBEAT_SOON_S: Final = 0.2
"""From a heartbeat that told of replicas that were started to the next one: HAKeeper thinks of what
comes next at a tick, so two of those, and its answer carries the next commands."""

HAKEEPER_TOGETHER_S: Final = 0.03
"""At shard 0's leader the first heartbeat of a second, or its ticks, waits so long for the others:
longer than an entry takes to be applied everywhere, and nothing beside a store's time-out."""

DIRECTORY_PAGES_PER_BEAT_MAX: Final = 8
"""Pages of the directory that a store asks for after one heartbeat: 2048 logs a second, so that a
whole copy of the largest directory takes half a minute, and no store that starts is a burden."""

DIRECTORY_WRITE_INTERVAL_S: Final = 10.0
"""At most so often the directory's file is written because logs changed: for 10 000 logs that are
1.5 MB. What a crash loses is asked for again."""

DIRECTORY_REWRITE_S: Final = 600.0
"""The directory's file is written so often even if nothing changed, so that it says how old it
is."""

DIRECTORY_SILENT_S: Final = 4.0
"""When HAKeeper has confirmed the directory for so long no more, and for four heartbeats at least,
look-ups are answered from it at once: longer than an election and a heartbeat's time-out."""

DIRECTORY_PATIENCE_S: Final = 0.5
"""How long a look-up waits for HAKeeper where the store's own directory could answer, too: several
round trips, and far less than a client waits."""

STORE_COMMANDS_AT_ONCE_MAX: Final = 16
"""HAKeeper's commands that a store carries out in parallel."""

STORE_COMMAND_TIMEOUT_S: Final = 10.0
"""One command may take so long; HAKeeper sends it again when its effect is still wanted."""

STORE_COMMANDS_REMEMBERED: Final = 4096
"""Executed command ids a store recognises when they are delivered again."""

HAKEEPER_ATTEMPT_TIMEOUT_S: Final = 1.0
"""How long one store is given to answer a request to shard 0; then the next store is asked. About
an election."""

HAKEEPER_RETRY_S: Final = 0.1
"""Between two rounds of asking every store that may run shard 0."""

PROBE_INTERVAL_S: Final = 0.2
"""Between two rounds of asking the initial members of shard 0 at a cluster's first start."""

# --- who is heard ---------------------------------------------------------------------------------

TERM_STEP: Final = 1 << 20
"""How far one message that nobody confirms raises a term. A shard that holds an election every
second for twelve days does not go through so many terms, and the end of the numbers is 2^42 steps
away."""

TERM_WAIT_ELECTIONS_MIN: Final = 16
TERM_WAIT_ELECTIONS_MAX: Final = 256
"""Election timeouts between two rises of the term by messages of one member while there is a
leader: the first wait, and the longest. With timeouts of a second that member costs 24 elections in
the first hour and 14 in each later one. An honest member with a higher term says so once."""

TERM_WAIT_ELECTIONS_LEADERLESS: Final = 4
"""Election timeouts between two such rises while there is no leader: the other members finish an
election in two."""

VOUCH_ASK_ELECTIONS: Final = 0.1
"""The share of an election timeout between two rounds of asking the voters whom they stand behind:
about a heartbeat, after which a leader that was not heard speaks again."""

VOUCH_CLAIMS_MAX: Final = 4
"""Terms that one member says it leads, and that the voters are being asked about. One more replaces
the oldest."""

VOUCH_WAITING_BYTES_MAX: Final = 64 * 1024
"""Payload bytes of a new leader's message that waits for the voters' answers. One message waits for
each member that says that it leads; the first entry of a term has no payload."""

REFUSALS_SAID_MAX: Final = 1024
"""Events about messages that were not heard, since the start of the store; further ones are only
counted."""

MEMBERS_ASK_S: Final = 1.0
"""Between two rounds of asking HAKeeper who the members of shards are, after strangers spoke."""

MEMBERS_ASKED_AT_ONCE: Final = 16
"""Shards in one round: a thousand shards that a stranger names take a minute and cost HAKeeper
little."""

READ_CONTEXT_BYTES_MAX: Final = 64
"""Bytes that a replica sends along with a question for a read index, and recognises the answer
by."""

# --- damage and repair ----------------------------------------------------------------------------

REPAIR_INTERVAL_S: Final = 1.0
"""Between two looks at the replicas that are to be repaired, and after an attempt that failed."""

REPAIR_BYTES_AT_ONCE: Final = 1024 * 1024
"""Payload bytes asked of a peer in one request: one read there, one commit group here."""

REPAIR_ENTRIES_AT_ONCE: Final = 4096
"""Entries in one answer; when entries are small, this bound keeps the peer's loop free."""

REPAIR_REQUEST_TIMEOUT_S: Final = 5.0
"""A peer that does not answer is passed over."""

REPAIR_STALLED_S_MAX: Final = 30.0
"""A damaged replica without progress for so long is reported as halted, so that HAKeeper replaces
it. It is shorter than most store timeouts, and longer than a peer's restart, which should not cost
a full copy."""

SCRUB_BYTES_PER_S: Final = 4 * 1024 * 1024
"""Bytes of sealed segments verified per second and data directory while a pass is under way: a
tenth of a core at the worst (100-byte entries), a gigabyte in four minutes, a TiB in three days."""

SCRUB_BYTES_PER_S_MIN: Final = 512 * 1024
"""The slowest rate that may be configured. A range that a peer asks for waits for all others that
are served and a slice of the scrub: up to 20 s at this rate, within COMPARE_REQUEST_TIMEOUT_S."""

SCRUB_BYTES_PER_S_MAX: Final = 1024 * 1024 * 1024
"""The fastest rate that may be configured: more than an interpreter can verify."""

SCRUB_SLICE_BYTES: Final = 1024 * 1024
"""Bytes read and verified at once, in a thread beside the loop."""

SCRUB_PASS_INTERVAL_S: Final = 6 * 3600.0
"""Between the end of a pass and the start of the next. Damage stays unseen for this long and for
the time of a pass (14 GiB/h). The scrub is there to prevent a second damage in the same place on
another store in that time."""

SCRUB_FIRST_PASS_S: Final = 5.0
"""From a store's start to its first pass: until then it has more urgent things to read."""

COMPARE_RANGE_ENTRIES: Final = 1024
"""Entries whose digests are compared at once: a few milliseconds; ranges end at multiples of it."""

COMPARE_RANGE_BYTES: Final = 1024 * 1024
"""Payload bytes of a range, unless it is one larger entry; as much is read into memory at once."""

COMPARE_RANGE_COST_BYTES: Final = 64 * 1024
"""What a range counts for in SCRUB_BYTES_PER_S beside its bytes: asking every member costs a
millisecond."""

COMPARE_SERVED_MAX: Final = 8
"""Ranges that are read for peers at a time; beyond it BUSY. Each store asks for one at a time."""

COMPARE_REQUEST_TIMEOUT_S: Final = 30.0
"""How long a member may take to answer for a range, which waits its turn in the member's read
rate."""

COMPARE_FINDING_TIMEOUT_S: Final = 3 * COMPARE_REQUEST_TIMEOUT_S
"""How long a store that is told of a difference may take: it reads its own range and asks everybody
else for theirs."""

COMPARE_FIRST_PASS_S: Final = 60.0
"""From a store's start to its first comparison: replicas catch up first, and one that is behind is
not compared."""

COMPARE_RETRY_S: Final = 5.0
"""Until a difference that could not be settled is looked at again."""

COMPARE_UNDECIDED_S_MAX: Final = 60.0
"""A difference that nobody can decide halts the shard after so long. Restarted stores are back by
then. The default store timeout, after which a copy could outvote one side, has not passed yet."""

APPLY_STUCK_S: Final = 10.0
"""A replica that has something to apply and applies nothing for so long is stuck. One read of the
disk takes at most seconds, also on a disk that recovers from an error."""

APPLY_GIVE_WAY_S: Final = 15.0
"""Between two times that one replica gives leadership away because it is stuck. A successor that is
to get stuck, too, has shown it by then."""

APPLY_ASK_AGAIN_S: Final = 5.0
"""Until a leader that is stuck, and found nobody to give way to, asks again. It is longer than an
answer may take (APPLY_ASK_TIMEOUT_S), so one asks at a time."""

APPLY_ASK_TIMEOUT_S: Final = 2.0
"""For the answer of another voter to a leader that is stuck; a healthy loop answers at once."""

DIRECTORY_OPEN_S: Final = 60.0
"""Seconds that a store waits for a data directory to open or to close while it runs. The ballast of
a new one is written then; a disk that takes longer is stuck."""

DIRECTORY_CHANGE_RETRY_S: Final = 1.0
"""Seconds after which whoever came while another data directory was added may ask again."""

CLOCK_SKEW_MAX_S: Final = 10.0
"""How far a store's clock may be off what a majority agrees on before the store gives leadership
away, and how far ahead of it an append time may be. A time service keeps clocks within
milliseconds, one that has just started within a second, and a comparison is off by half a second at
most (CLOCK_ASK_TIMEOUT_S); who asks for the LSN at a time, or keeps records for days, does not
notice ten seconds."""

CLOCK_JUMP_MAX_S: Final = 1.0
"""A clock that moves by more than this against the monotonic one between two ticks was set. Time
services slew what is less than 0.13 s, and a leap second is not more."""

CLOCK_LOOK_S: Final = 5.0
"""Between two comparisons of a store's clock with its neighbours'. It bounds for how long a leader
goes on whose clock has become wrong; the machines' monotonic clocks drift by a millisecond
meanwhile at most."""

CLOCK_ASK_TIMEOUT_S: Final = 1.0
"""For the answer of a store that was asked for its time. Half of it is the error of an answer."""

CLOCK_HAND_OVERS_PER_LOOK: Final = 100
"""Logs that a store whose clock is wrong hands over after one comparison: that many elections are
over before the next one."""

# --- measurements that a person asks for (`nodehost.measuring`) -----------------------------------

SELF_TEST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the file that a disk is measured with: a second of a common disk, and a hundredth of the
smallest reserve that is sensible."""

SELF_TEST_PART_S: Final = 2.0
"""Seconds of each part of a measurement: long enough for a p99, short enough that nobody who waits
for an append loses patience."""

SELF_TEST_SYNCS_MAX: Final = 200
"""Small durable writes of a measurement: the p99 is the second slowest."""

SELF_TEST_DISK_S: Final = 20.0
"""Seconds after which a disk that is measured counts as stuck: its three parts, and more than as
long again for one operation that does not end."""

SELF_TEST_RETRY_S: Final = 5.0
"""Seconds after which whoever came while the store measured something may ask again."""

SELF_TEST_UNBELIEVABLE_US: Final = 15.0
"""A disk whose fdatasync takes less has acknowledged before anything was durable: the fastest
devices need twice as long."""

SELF_TEST_DISK_SLOW_MIB_PER_S: Final = 60.0
"""A disk that writes or reads less is slower than a log at the rate of a good network adapter."""

SELF_TEST_DISK_BAD_MIB_PER_S: Final = 10.0
"""A disk below that takes minutes for what a replacement replica has to copy in seconds."""

SELF_TEST_ECHOES_MAX: Final = 200
"""Round trips of a measurement: the p99 is the second slowest."""

SELF_TEST_NETWORK_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes that are sent to another store for a measurement: a quarter of a second at a gigabit."""

SELF_TEST_REQUEST_BYTES_MAX: Final = 256 * 1024
"""Bytes of one request of it: a message of a shard waits behind no more than a few of them."""

SELF_TEST_REQUESTS_AT_ONCE: Final = 4
"""Requests of a measurement without an answer yet: a megabyte, which fills a connection."""

SELF_TEST_ANSWER_S: Final = 2.0
"""Seconds for one answer: a store that takes longer is not measured any further."""

SELF_TEST_TRIP_SLOW_US: Final = 5_000.0
"""A round trip above it costs each append more than a disk does; between regions it is normal."""

SELF_TEST_TRIP_BAD_US: Final = 100_000.0
"""A round trip above it is a tick: with the default election timeout leaders begin to change."""

SELF_TEST_NETWORK_SLOW_MIB_PER_S: Final = 40.0
"""A connection below it is the bottleneck of a busy log: a third of a gigabit."""

SELF_TEST_NETWORK_BAD_MIB_PER_S: Final = 4.0
"""A connection below it takes hours for what a replacement replica has to copy."""

SELF_TEST_TIMERS: Final = 100
"""Timers whose lateness is measured."""

SELF_TEST_TIMER_S: Final = 0.01
"""Seconds of each: a tenth of a tick."""

SELF_TEST_LATE_SLOW_US: Final = 10_000.0
"""A timer that is later than that comes late by as long as it runs: the event loop is busy."""

SELF_TEST_LATE_BAD_US: Final = 100_000.0
"""A timer that is a tick late: the store misses its turns."""

# --- recovery -------------------------------------------------------------------------------------

RECOVER_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Payloads of one commit group of `logservice recover`: a tenth of a second of a disk."""

"""Soft bounds of `nodehost/` (`transport` has more): requests, truncation, HAKeeper, repair."""

from __future__ import annotations

from typing import Final

# --- requests -------------------------------------------------------------------------------------

PENDING_PROPOSALS_MAX: Final = 65_536
"""Proposals of one replica waiting for their outcome; beyond it BUSY."""

PENDING_PROPOSAL_BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of them."""

PENDING_READS_MAX: Final = 65_536
"""Linearizable reads of one replica waiting for their index."""

READ_BYTES_DEFAULT: Final = 1024 * 1024
"""Of them, when the call does not say."""

READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""Blocks in one Read answer; at least one block is returned whatever the limit. A store may have
less, not more: GRPC_MESSAGE_BYTES_MAX counts on it."""

# --- snapshots and truncation ---------------------------------------------------------------------

EXPORTED_SNAPSHOTS_MAX: Final = 20
"""Exported snapshots kept per replica: enough that the largest <= truncation LSN is near it."""

TRUNCATION_ALARM_BYTES: Final = 64 * 1024 * 1024
"""Truncatable bytes that make standing still worth an alarm: less may not free even one segment."""

TRUNCATION_ALARM_VISITS: Final = 2
"""Visits of a replica without progress, one per interval, before the alarm (invariant T4)."""

HAKEEPER_LOG_ENTRIES_MAX: Final = 20_000
"""Applied entries of shard 0 kept before it compacts itself: half an hour of ticks and beats."""

HAKEEPER_LOG_BYTES_MAX: Final = 32 * 1024 * 1024
"""The same in bytes: heartbeats of large stores are large."""

# --- HAKeeper's shell -----------------------------------------------------------------------------

HEARTBEAT_TIMEOUT_S: Final = 3.0
"""One heartbeat's way to shard 0 and back; the next one is sent whatever became of it."""

STORE_COMMANDS_AT_ONCE_MAX: Final = 16
"""HAKeeper's commands that a store carries out in parallel."""

STORE_COMMAND_TIMEOUT_S: Final = 10.0
"""One command; HAKeeper sends it again when its effect is still wanted."""

STORE_COMMANDS_REMEMBERED: Final = 4096
"""Executed command ids a store recognises when they are delivered again."""

HAKEEPER_ATTEMPT_TIMEOUT_S: Final = 1.0
"""One store asked for shard 0 for somebody; then the next is asked. About an election."""

HAKEEPER_RETRY_S: Final = 0.1
"""Between two rounds of asking every store that may run shard 0."""

PROBE_INTERVAL_S: Final = 0.2
"""Between two rounds of asking the initial members of shard 0 at a cluster's first start."""

# --- who is heard ---------------------------------------------------------------------------------

TERM_STEP: Final = 1 << 20
"""How far one word that nobody confirms raises a term: more terms than a shard goes through that
holds an election every second for twelve days, and 2^42 steps from the end of the numbers."""

TERM_WAIT_ELECTIONS_MIN: Final = 16
TERM_WAIT_ELECTIONS_MAX: Final = 256
"""Election timeouts between two rises by the word of one member, at first and in the end, while
there is a leader: with timeouts of a second that member costs 24 elections in the first hour and 14
in each other. Who has a higher term honestly says so once."""

TERM_WAIT_ELECTIONS_LEADERLESS: Final = 4
"""The same while there is none: others finish an election in two."""

VOUCH_ASK_ELECTIONS: Final = 0.1
"""Of an election timeout, between two rounds of asking the voters whom they stand behind: about a
heartbeat, which is when a leader that was not heard speaks again."""

VOUCH_CLAIMS_MAX: Final = 4
"""Terms that one member says it leads, and that are being asked about; the oldest goes first."""

VOUCH_WAITING_BYTES_MAX: Final = 64 * 1024
"""Payload of the message of a new leader that waits for the voters' answers, one for each member
that says that it leads; the first entry of a term has none."""

REFUSALS_SAID_MAX: Final = 1024
"""Events about messages that were not heard, since the start of the store; the rest is counted."""

MEMBERS_ASK_S: Final = 1.0
"""Between two rounds of asking HAKeeper who the members of shards are, after strangers spoke."""

MEMBERS_ASKED_AT_ONCE: Final = 16
"""Shards in one round: a thousand that a stranger names take a minute and cost HAKeeper little."""

READ_CONTEXT_BYTES_MAX: Final = 64
"""What a replica sends along with a question for a read index, to know the answer by."""

# --- damage and repair ----------------------------------------------------------------------------

REPAIR_INTERVAL_S: Final = 1.0
"""Between two looks at the replicas that are to be repaired, and after an attempt in vain."""

REPAIR_BYTES_AT_ONCE: Final = 1024 * 1024
"""Payload asked of a peer in one request: one read there, one commit group here."""

REPAIR_ENTRIES_AT_ONCE: Final = 4096
"""Entries in one answer; of small ones this keeps the peer's loop free."""

REPAIR_REQUEST_TIMEOUT_S: Final = 5.0
"""A peer that does not answer is passed over."""

REPAIR_STALLED_S_MAX: Final = 30.0
"""Without progress for so long a damaged replica is reported as halted, so that HAKeeper replaces
it. Shorter than most store timeouts: a peer that restarts should not cost a full copy."""

SCRUB_BYTES_PER_S: Final = 4 * 1024 * 1024
"""Sealed segment bytes verified per second and data directory while a pass is under way: a tenth of
a core at the worst (100-byte entries), a gigabyte in four minutes, a TiB in three days."""

SCRUB_BYTES_PER_S_MIN: Final = 512 * 1024
"""A range that a peer asks for waits for all others that are served and a slice of the scrub: up to
20 s at this rate, which is within COMPARE_REQUEST_TIMEOUT_S."""

SCRUB_BYTES_PER_S_MAX: Final = 1024 * 1024 * 1024
"""More than an interpreter verifies: as fast as it goes."""

SCRUB_SLICE_BYTES: Final = 1024 * 1024
"""Read and verified at once, aside of the loop."""

SCRUB_PASS_INTERVAL_S: Final = 6 * 3600.0
"""Between the ends and starts of passes. Damage stays unseen for this long and a pass (14 GiB/h); a
second one in the same place on another store in that time is what the scrub is there to prevent."""

SCRUB_FIRST_PASS_S: Final = 5.0
"""A store that has just started has more urgent things to read."""

COMPARE_RANGE_ENTRIES: Final = 1024
"""Entries whose digests are compared at once: a few milliseconds; ranges end at multiples of it."""

COMPARE_RANGE_BYTES: Final = 1024 * 1024
"""Payload of a range, unless it is one larger entry; also what is read into memory at once."""

COMPARE_RANGE_COST_BYTES: Final = 64 * 1024
"""What a range counts in SCRUB_BYTES_PER_S beside its bytes: asking every member costs a ms."""

COMPARE_SERVED_MAX: Final = 8
"""Ranges that are read for peers at a time; beyond it BUSY. Each store asks for one at a time."""

COMPARE_REQUEST_TIMEOUT_S: Final = 30.0
"""A range waits its turn in every member's read rate."""

COMPARE_FINDING_TIMEOUT_S: Final = 3 * COMPARE_REQUEST_TIMEOUT_S
"""Who is told of a difference reads its own range and asks everybody else for theirs."""

COMPARE_FIRST_PASS_S: Final = 60.0
"""Replicas of a store that has just started catch up first; what is behind is not compared."""

COMPARE_RETRY_S: Final = 5.0
"""Until a difference that could not be settled is looked at again."""

COMPARE_UNDECIDED_S_MAX: Final = 60.0
"""A difference that nobody can decide halts the shard after so long: restarted stores are back by
then, and the default store timeout, after which a copy could outvote one side, has not passed."""

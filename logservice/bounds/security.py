"""Soft bounds of the edge: what one identity, call or stream may take; audit and certificates."""

from __future__ import annotations

from typing import Final

from logservice.bounds.hard import BLOCK_BYTES_MAX, SESSION_WINDOW

CONNECTION_AGE_MAX_S: Final = 900.0
"""A connection is replaced after a quarter of an hour, so that a CA that was taken away, or a
certificate that expired, ends what was begun with it."""

CONNECTION_GRACE_S: Final = 30.0
"""Calls of a client's connection that reached its age may go on for so long; then they are cut, and
the client resumes them on a new one."""

PEER_AGE_LOOK_S: Final = 10.0
"""Between two looks whether a connection between stores has lived for as long as it may. Timers
stand still while the host is suspended, so a connection outlives its end by this at most once the
host has woken up."""

PEER_DRAIN_S: Final = 0.5
"""How long a peer connection that reached its age waits for answers still due: less than an
election."""

GATE_CALLERS_MAX: Final = 4096
"""Certificates whose bearers are remembered, and identities; those beyond it are worked out
again."""

IDENTITIES_SEEN_MAX: Final = 4096
"""Identities that a store remembers having seen, as many as the gate does: 8 MiB at most."""

IDENTITIES_PER_PAGE_MAX: Final = 1000
"""Of them in one answer: 2 MiB at most, half of what a gRPC client takes."""

DENIAL_TEXT_MAX: Final = 1024
"""Characters that are kept of why somebody was denied."""

GATE_DECISIONS_MAX: Final = 65_536
"""Decisions about (identity, RPC, shard) that are remembered for one version of the access list."""

GATE_NAMES_MAX: Final = 65_536
"""Names of shards that are remembered: as many as there can be shards."""

GRANT_AGE_MAX_S: Final = 24 * 3600.0
"""For so long after HAKeeper's last answer a store lets clients in by its access list, from cluster
version 2 on. Then a revocation that it has not heard of is complete, and it is time enough to bring
HAKeeper back."""

ACCESS_CURRENT_S: Final = 10.0
"""For so long after HAKeeper's answer, and for three heartbeats at least, a store denies by its
access list. Later it cannot tell: a grant may have been made that it has not heard of."""

IDENTITY_RPCS_MAX: Final = 8192
"""Unary calls of one identity under way. It is less than a store serves in all, so that one client
that goes astray leaves room for others."""

PENDING_CALLS_MAX: Final = IDENTITY_RPCS_MAX
"""Calls that gRPC keeps before the store has asked for them. It drops those beyond it without a
status, so that their clients cannot know what became of them; its own bound is 1000. With
METADATA_BYTES_MAX of headers each they are 64 MiB."""

IDENTITY_STREAMS_MAX: Final = 4096
"""Streams of one identity."""

QUOTA_DEBT_S_MAX: Final = 150.0
"""For so long an identity waits at most for what it owes: what the largest request costs at the
lowest rate, whatever was under way when a rate was set."""

QUOTA_LOOK_S: Final = 1.0
"""A stream that waits for its identity's rate looks so often whether it is another one by now."""

SMALL_REQUEST_BYTES_MAX: Final = 64 * 1024
"""Bytes of a request without blocks: a few numbers, names and labels. Once parsed, lists may take
80 times as much memory."""

STREAM_MESSAGE_FIELDS_MAX: Final = SESSION_WINDOW + 1
"""Fields of one AppendStream message: as many blocks as may be in flight, and its opening."""

STREAM_LANES_MAX: Final = 1024
"""Lanes of one AppendShards stream, those included whose end has not been told. Each is one of the
streams of its identity, too, so an identity cannot have more of them by this. Clients know the
number."""

SHARDS_MESSAGE_FIELDS_MAX: Final = 512
"""Lanes that are opened, blocks, and lanes that are closed in one AppendShards message, which are
taken at a stretch: a block costs ten to twenty microseconds of the loop. Clients know it."""

REQUEST_BYTES_MAX: Final = BLOCK_BYTES_MAX + 1024 * 1024
"""Bytes of any request: one block of the largest size and the fields around it."""

SHARDS_MESSAGE_OPENS_MAX: Final = 8
"""Lanes that are opened in one AppendShards message. Each makes a task, asks the gate and the log,
and costs a hundred microseconds. Clients know it."""

STREAM_LANES_WAITING_BYTES_MAX: Final = REQUEST_BYTES_MAX
"""Bytes of the blocks of one AppendShards stream that wait for their lanes: to be let in, or for
room. It is what a stream of one shard may have read and not proposed; a lane whose block does not
fit gets BUSY, and the others go on."""

REQUEST_BYTES_RECEIVED_MAX: Final = 2 * REQUEST_BYTES_MAX
"""Bytes of a request that gRPC takes in. A request that is too long, by less than as much again,
gets TOO_LARGE with its ErrorInfo; to anything longer gRPC itself answers RESOURCE_EXHAUSTED before
it has read it all."""

METADATA_BYTES_MAX: Final = 8 * 1024
"""Bytes of a call's headers."""

STREAM_OPEN_TIMEOUT_S: Final = 10.0
"""How long a new stream may take to send something: one on which nothing is sent holds a place that
others could use."""

STREAM_WRITE_STALL_S: Final = 60.0
"""A reader that takes nothing for so long is cut, because its last message waits in memory."""

CONNECTION_IDLE_MAX_S: Final = 600.0
"""A client's connection without a call for so long is closed; the next call opens another."""

PING_STRIKES_MAX: Final = 2
"""Pings that may come too soon before their connection is closed for it (ENHANCE_YOUR_CALM)."""

AUDIT_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of an audit file; then the next one begins."""

AUDIT_FILES_MAX: Final = 8
"""Audit files kept of each of the two trails; with the size of one this bounds the log at 1 GiB."""

AUDIT_IDENTITY_BYTES_PER_S: Final = 64 * 1024
"""What one identity may add to the trail of calls, for denials and for data each. To push 512 MiB
out it would have to do nothing else for more than two hours."""

AUDIT_ADMIN_BYTES_PER_S: Final = 16 * 1024
"""What one identity may add to the trail of administration; beyond it its calls are refused. To
push the trail out it needs nine hours."""

AUDIT_BURST_S: Final = 16.0
"""What an identity does not use of its share adds up for so long, so that a script that makes a
hundred shards is not refused."""

AUDIT_IDENTITIES_MAX: Final = 4096
"""Identities whose share is told apart, as many as the gate remembers."""

AUDIT_SHARDS_NAMED_MAX: Final = 16
"""Shards that a line about many denials names."""

AUDIT_QUEUE_LINES_MAX: Final = 65_536
"""Lines waiting for the disk. Beyond it calls on data are only counted, and administration is
refused."""

AUDIT_BATCH_LINES_MAX: Final = 4096
"""Lines written at a time."""

AUDIT_ADMIT_S: Final = 5.0
"""A call of administration waits for so long until its line is on disk; then it is refused."""

STOP_FLUSH_S: Final = 5.0
"""A store that stops waits for so long until its audit log is written, or its spans are sent."""

AUDIT_REPEAT_S: Final = 10.0
"""The same denial within this time is one line with a count."""

AUDIT_REPEATS_MAX: Final = 1024
"""Different denials that are counted at a time."""

PEM_FILE_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a file in PEM: a CA bundle of hundreds of certificates fits, and a larger file is no
such bundle."""

CERTIFICATE_CHAIN_BYTES_MAX: Final = 16 * 1024
"""Bytes of a chain that somebody shows: four certificates with RSA keys of 4 096 bits. The gate
remembers GATE_CALLERS_MAX chains."""

RSA_KEY_BITS_MIN: Final = 2048
"""A key of 112 bits of strength, which NIST SP 800-57 asks for until 2030."""

RSA_KEY_BITS_MAX: Final = 8192
"""A larger key costs whoever checks a signature more than it adds."""

BOOTSTRAP_ADMINS_MAX: Final = 16
"""Identities of the configuration that may do everything."""

CERTIFICATE_WARNING_SHARE: Final = 0.2
"""A certificate with less than this share of its life left is an alarm: renewal was forgotten."""

KEYS_COMMAND_S: Final = 30.0
"""How long the command that prints a ring of keys may take."""

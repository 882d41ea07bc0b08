"""Events: what a store says about itself in its log, one line per event that matters.

Theory of operation. Every event has a name that scripts and alerts may rely on, a level, and a text
for people. `emit` hands it to the standard logger of the module where it happened, with the name
and the fields beside the text, so that the JSON form of the log (`server.log_format`) keeps them
apart. Nothing is logged per append or per message. An event is one of these: leadership or
membership changed, a fault began or ended, a command was carried out, an identity was refused.

This file alone decides the names; docs/operations/events.md lists them, and a test keeps the two
together.
"""

from __future__ import annotations

import enum
import logging


class Event(enum.Enum):
    """Name, level and text of each event; the text's fields are the event's fields."""

    STORE_STARTED = (logging.INFO, "{store} serves clients on {client}, stores on {peer}")
    STORE_STOPPING = (logging.INFO, "{store} stops: no new calls, leaderships are handed away")
    STORE_STOPPED = (logging.INFO, "{store} has stopped")
    ADMIN_STARTED = (logging.INFO, "the admin port answers on {address}")
    LEADER_HERE = (logging.INFO, "shard {shard}: replica {replica} leads here in term {term}")
    LEADER_GONE = (
        logging.INFO,
        "shard {shard}: replica {replica} leads no more; term {term}, leader {leader}",
    )
    MEMBERSHIP_CHANGED = (
        logging.INFO,
        "shard {shard}: membership {epoch}: voters {voters}, learners {learners}",
    )
    REPLICA_HALTED = (logging.ERROR, "shard {shard}: replica {replica} halted: {reason}")
    REPLICA_BROKEN = (
        logging.CRITICAL,
        "shard {shard}: replica {replica} halts, because an invariant does not hold: {error}",
    )
    MESSAGE_REFUSED = (
        logging.WARNING,
        "shard {shard}: store {store} is not heard ({reason}): {detail}",
    )
    REPLICA_REPAIRED = (logging.WARNING, "shard {shard}: replica {replica} is repaired in place")
    REPLICA_STUCK = (
        logging.ERROR,
        "shard {shard}: replica {replica} applies nothing, at entry {applied} of {committed}",
    )
    REPLICA_GOES_ON = (logging.INFO, "shard {shard}: replica {replica} applies again")
    INDEX_REBUILT = (
        logging.WARNING,
        "the derived index of data directory {path} is made anew from the segments: {reason}",
    )
    CONFIG_RELOADED = (
        logging.INFO,
        "the configuration was read again and is {digest}; taken up: {taken_up};"
        " needs a restart: {needs_restart}; counts at a first start only: {first_start}",
    )
    CONFIG_REFUSED = (
        logging.ERROR,
        "the configuration was read again and is wrong, so nothing of it was taken up: {reason}",
    )
    KEYS_REPLACED = (logging.INFO, "segments are encrypted with the key {key} from now on")
    KEYS_REFUSED = (
        logging.WARNING,
        "the ring of keys that segments are encrypted with stays as it was: {reason}",
    )
    TOKEN_KEYS_REPLACED = (
        logging.INFO,
        "tokens are checked by the issuer's keys {keys} from now on",
    )
    TOKEN_KEYS_REFUSED = (
        logging.WARNING,
        "the keys that tokens are checked by stay as they were: {reason}",
    )
    DAMAGE_AT_START = (
        logging.ERROR,
        "data directory {path} has {count} damaged places, {unattributed} of an unknown replica;"
        " the first: {detail}",
    )
    DIVERGENCE_FOUND = (
        logging.ERROR,
        "shard {shard}: replicas {replicas} differ from the majority: {what}",
    )
    DIVERGENCE_UNDECIDED = (
        logging.ERROR,
        "shard {shard}: replicas {replicas} differ, and too few answer to tell who is right:"
        " {what}",
    )
    SHARD_CONTESTED = (
        logging.ERROR,
        "shard {shard} halts until a person decides: no majority of its replicas agrees: {what}",
    )
    DIRECTORY_ADDED = (
        logging.WARNING,
        "data directory {path} ({incarnation}) is used from now on",
    )
    DIRECTORY_REMOVED = (
        logging.WARNING,
        "data directory {path} ({incarnation}) is not used any more: it was drained and removed",
    )
    DIRECTORY_FAILED = (logging.ERROR, "data directory {path} is not used any more: {reason}")
    NOT_READY = (logging.WARNING, "not ready: {reason}, {count} times: {detail}")
    REASON_GONE = (logging.INFO, "no longer: {reason}")
    SLOW_DISK = (logging.WARNING, "the disk is slow: durable writes take {p99_us} us (p99)")
    SLOW_DISK_OVER = (
        logging.INFO,
        "the disk is normal again: durable writes take {p99_us} us (p99)",
    )
    TRUNCATION_STALLED = (
        logging.WARNING,
        "truncation of shard {shard} stands still for {visits} visits: {reason},"
        " {bytes} bytes could go",
    )
    PEER_PORT_CROWDED = (
        logging.WARNING,
        "the peer port turned {count} connections away that had not said who they are, the newest"
        " from {address}",
    )
    HAKEEPER_SILENT = (logging.WARNING, "HAKeeper has not answered for {seconds} s")
    HAKEEPER_ANSWERS = (logging.INFO, "HAKeeper answers again")
    CLUSTER_VERSION = (logging.INFO, "the cluster is at version {version}")
    STORE_JOINED = (logging.WARNING, "store {joined} belongs to the cluster from now on")
    LOG_REMOVED = (
        logging.INFO,
        "the log is deleted: replica {replica} of shard {shard} is removed",
    )
    LOG_NOT_REMOVED = (
        logging.WARNING,
        "replicas of the deleted shard {shard} are not removed yet: {error}",
    )
    SERVICE_HOLD_REFUSED = (
        logging.WARNING,
        "shard {shard}: {hold} of a service is not set or released yet: {error}",
    )
    CLOCK_JUMPED = (
        logging.WARNING,
        "the clock of this store jumped by {seconds} s; it is compared with other stores'",
    )
    CLOCK_FAR = (
        logging.ERROR,
        "the clock of this store is {seconds} s off what most stores agree on:"
        " its leaderships are handed away",
    )
    CLOCK_NEAR = (logging.INFO, "the clock of this store is right again ({seconds} s off)")
    ARCHIVER_STARTED = (logging.INFO, "the archiver of the cluster begins here, as process {pid}")
    ARCHIVER_STOPPED = (logging.INFO, "the archiver ends here (process {pid})")
    ARCHIVER_SAID = (logging.WARNING, "the archiver says: {text}")
    ARCHIVER_FAILED = (
        logging.ERROR,
        "the archiver ended by itself with code {code}; it is begun again in {seconds} s",
    )
    HOLD_EXPIRED = (
        logging.INFO,
        "shard {shard}: hold {hold} of {owner} at LSN {lsn} was not renewed for {ttl_s} s, and is"
        " gone",
    )
    RECORDS_RETIRED = (
        logging.INFO,
        "shard {shard}: {records} records went by the log's retention since this was last said,"
        " through LSN {lsn}",
    )
    COMMAND_DONE = (logging.INFO, "HAKeeper's command {command_id} is done: {command}")
    COMMAND_FAILED = (logging.WARNING, "HAKeeper's command {command_id} failed: {error}")

    def __init__(self, level: int, text: str) -> None:
        """An enum member's parts."""
        self.level = level
        self.text = text

    @property
    def key(self) -> str:
        """The name in the log and in the API."""
        return self.name.lower()


def _words(value: object) -> object:
    """A field as the text shows it: several things are listed as a person would list them."""
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value)) or "none"
    return value


def emit(logger: logging.Logger, event: Event, **fields: object) -> None:
    """Logs one line; `fields` has at least those that the text names, and others are kept, too."""
    if logger.isEnabledFor(event.level):
        logger.log(
            event.level,
            event.text.format(**{name: _words(value) for name, value in fields.items()}),
            extra={"event": event.key, "event_fields": fields},
            stacklevel=2,
        )

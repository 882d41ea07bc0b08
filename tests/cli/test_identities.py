"""What `logctl identities` makes of the answers of several stores, one of which does not answer."""

from __future__ import annotations

import time

from logservice_wire.v1.admin_pb2 import SeenIdentity

from logservice.cli.ctl.identities import Answer, last_us, last_uses, merged, title

FIRST = SeenIdentity(
    identity="me", first_us=1_000_000, last_us=9_000_000, peer="ipv4:1.1.1.1:1", calls=3, busy=1
)
SECOND = SeenIdentity(
    identity="me",
    first_us=2_000_000,
    last_us=5_000_000,
    peer="ipv4:2.2.2.2:2",
    calls=4,
    denials=2,
    denied_us=4_000_000,
    denied_what="Read",
    denied_shard=7,
    denied_why="no role",
)


def test_what_stores_say_is_added_up() -> None:
    row = merged([("s1", FIRST), ("s2", SECOND)])
    assert (row["calls"], row["busy"], row["denials"], row["streams"]) == (7, 1, 2, 0)
    assert (row["first_seen"], row["last_use"]) == ("1970-01-01T00:00:01Z", "1970-01-01T00:00:09Z")
    assert (row["store"], row["address"]) == ("s1", "ipv4:1.1.1.1:1")
    assert (row["denied_what"], row["denied_shard"], row["denied_why"]) == ("Read", 7, "no role")
    assert row["last_denied"] == "1970-01-01T00:00:04Z"
    assert row["certificate_ends"] is None


def test_who_was_denied_nothing_has_no_denial() -> None:
    row = merged([("s1", FIRST)])
    assert (row["denials"], row["last_denied"], row["denied_shard"]) == (0, None, None)


def test_an_open_stream_is_use_now() -> None:
    before_us = int(time.time() * 1e6)
    group = [("s1", FIRST), ("s2", SeenIdentity(identity="me", last_us=5, streams=1))]
    assert last_us(group) >= before_us
    answers = [Answer("s1", [FIRST]), Answer("s2", [SeenIdentity(identity="never")])]
    assert last_uses(answers) == {"me": "1970-01-01T00:00:09Z"}


def test_the_title_says_what_is_missing() -> None:
    answers = [
        Answer("s1", [FIRST], since_us=1_000_000),
        Answer("s2", since_us=8_000_000, forgotten=3),
        Answer("s3", error="NOT_READY: down"),
    ]
    assert title(answers) == (
        "as 2 of 3 stores saw it, all since 1970-01-01T00:00:08Z, 3 forgotten to make room"
    )
    assert title(answers[2:]) == "no store answered"

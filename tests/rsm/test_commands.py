"""Commands: each has one byte form, and nothing else decodes."""

from __future__ import annotations

import contextlib
import random

import pytest
from logservice_wire.errors import InvalidArgument, Reason, TooLarge

from logservice.bounds import (
    HOLD_TTL_S_MAX,
    HOLD_TTL_S_MIN,
    IDENTITY_BYTES_MAX,
    NAME_BYTES_MAX,
    TIMESTAMPS_PER_CALL_MAX,
)
from logservice.ids import Index, Lsn, SessionId
from logservice.rsm.commands import (
    AcquireWriter,
    AllocateTimestamps,
    Command,
    CommandMalformed,
    Connect,
    EndRestore,
    ExpireHold,
    ForgetSession,
    OpenNamedSession,
    OpenSession,
    ReleaseHold,
    ReleaseWriter,
    RenewHold,
    Retain,
    SetHold,
    SetHoldFor,
    Truncate,
    TruncateMirror,
    decides_writer,
    decode,
    encode,
)
from tests.owners import APP, NONCE

BY = "03000200" + "617070" + "7331"
"""The encoding of APP: two lengths, "app", "s1"."""

GOLDEN: list[tuple[Command, str]] = [
    (OpenSession(APP, NONCE), "01020000" + BY + "0102030405060708090a0b0c0d0e0f10"),
    (Truncate(APP, Lsn(258), 3), "02020000" + BY + "02010000000000000300000000000000"),
    (SetHold(APP, False, Lsn(7), "bück"), "03020000" + BY + "00070000000000000062c3bc636b"),
    (ReleaseHold(APP, True, "x"), "04020000" + BY + "0178"),
    (
        AcquireWriter(APP, False, 1, True, "db-1"),
        "05020000" + BY + "0001000000000000000164622d31",
    ),
    (ReleaseWriter(APP, False, 2), "06020000" + BY + "000200000000000000"),
    (AllocateTimestamps(100), "0702000064000000"),
    (Connect(), "08020000"),
    (
        SetHoldFor(APP, False, Lsn(7), HOLD_TTL_S_MIN, "bück"),
        "0a020000" + BY + "00" + "0700000000000000" + "05000000" + "62c3bc636b",
    ),
    (RenewHold(APP, "x"), "0b020000" + BY + "78"),
    (ExpireHold(Index(258), "x"), "0c020000" + "0201000000000000" + "78"),
    (Retain(3, Lsn(258)), "10020000" + "0300000000000000" + "0201000000000000"),
    (
        EndRestore(APP, b"l" * 16, b"d" * 32, Lsn(1), Lsn(258), 3, Lsn(257)),
        "0f020000"
        + BY
        + "6c" * 16
        + "64" * 32
        + "0100000000000000"
        + "0201000000000000"
        + "0300000000000000"
        + "0101000000000000",
    ),
    (TruncateMirror(APP, b"l" * 16, Lsn(258)), "11020000" + BY + "6c" * 16 + "0201000000000000"),
    (
        OpenNamedSession(APP, 258, 60, -2, b"c" * 32, "x"),
        "12020000" + BY + "020100003c000000feffffffffffffff" + "63" * 32 + "78",
    ),
    (
        ForgetSession(APP, True, SessionId(258), Index(3)),
        "13020000" + BY + "01" + "0201000000000000" + "0300000000000000",
    ),
]


@pytest.mark.parametrize(("command", "data"), GOLDEN)
def test_the_byte_form_is_fixed(command: Command, data: str) -> None:
    assert encode(command).hex() == data
    assert decode(bytes.fromhex(data)) == command


@pytest.mark.parametrize("command", [command for command, _ in GOLDEN])
def test_inv_rsm_canon_whatever_decodes_encodes_to_the_same_bytes(command: Command) -> None:
    """INV-RSM-CANON."""
    rng = random.Random(repr(command))
    good = encode(command)
    decoded = 0
    reasons = set()
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.randint(0, 3)):
            match rng.randrange(3):
                case 0 if data:
                    data[rng.randrange(len(data))] = rng.randrange(256)
                case 1:
                    data.insert(rng.randint(0, len(data)), rng.randrange(256))
                case _:
                    del data[rng.randint(0, len(data)) :]
        try:
            result = decode(bytes(data))
        except CommandMalformed as problem:
            reasons.add(problem.error.reason)
            continue
        decoded += 1
        assert encode(result) == bytes(data)
    assert decoded > 0
    assert reasons <= {Reason.INVALID_ARGUMENT, Reason.TOO_LARGE}


def test_random_bytes_never_fail_in_another_way() -> None:
    rng = random.Random(1)
    for _ in range(5000):
        with contextlib.suppress(CommandMalformed):
            decode(rng.randbytes(rng.randrange(40)))


@pytest.mark.parametrize(
    ("command", "error", "field"),
    [
        (SetHold(APP, False, Lsn(1), ""), InvalidArgument, "name"),
        (ReleaseHold(APP, False, ""), InvalidArgument, "name"),
        (ReleaseHold(APP, False, "\ud800"), InvalidArgument, "name"),
        (AcquireWriter(APP, False, 0, False, ""), InvalidArgument, "holder"),
        (AcquireWriter(APP, False, 0, False, "ü" * NAME_BYTES_MAX), TooLarge, "holder"),
        (AllocateTimestamps(0), InvalidArgument, "count"),
        (AllocateTimestamps(TIMESTAMPS_PER_CALL_MAX + 1), TooLarge, "count"),
        (ReleaseWriter(APP, False, -1), InvalidArgument, "command"),
        (Truncate(APP, Lsn(2**64), 0), InvalidArgument, "command"),
        (SetHoldFor(APP, False, Lsn(1), HOLD_TTL_S_MIN - 1, "h"), InvalidArgument, "ttl_s"),
        (SetHoldFor(APP, False, Lsn(1), HOLD_TTL_S_MAX + 1, "h"), InvalidArgument, "ttl_s"),
        (SetHoldFor(APP, False, Lsn(1), 0, ""), InvalidArgument, "name"),
        (RenewHold(APP, ""), InvalidArgument, "name"),
        (ExpireHold(Index(0), "h"), InvalidArgument, "revision"),
        (Retain(0, Lsn(5)), InvalidArgument, "retention"),
        (Retain(3, Lsn(0)), InvalidArgument, "retention"),
        (TruncateMirror(APP, b"l" * 16, Lsn(0)), InvalidArgument, "truncated_lsn"),
        (EndRestore(APP, b"l" * 16, b"d" * 32, Lsn(0), Lsn(1)), InvalidArgument, "restore"),
        (
            EndRestore(APP, b"l" * 16, b"d" * 32, Lsn(5), Lsn(9), 0, Lsn(4)),
            InvalidArgument,
            "restore",
        ),
        (
            EndRestore(APP, b"l" * 16, b"d" * 32, Lsn(5), Lsn(9), 0, Lsn(10)),
            InvalidArgument,
            "restore",
        ),
    ],
)
def test_bad_fields_are_refused_before_they_are_proposed(
    command: Command, error: type[InvalidArgument | TooLarge], field: str
) -> None:
    with pytest.raises(error) as caught:
        encode(command)
    assert field in (caught.value.metadata.get("field"), caught.value.metadata.get("name"))


def test_times_to_live_at_their_bounds_pass() -> None:
    for ttl_s in (0, HOLD_TTL_S_MIN, HOLD_TTL_S_MAX):
        command = SetHoldFor(APP, False, Lsn(1), ttl_s, "h")
        assert decode(encode(command)) == command


def test_a_name_of_the_largest_size_passes() -> None:
    assert decode(encode(ReleaseHold(APP, False, "n" * NAME_BYTES_MAX))) == ReleaseHold(
        APP, False, "n" * NAME_BYTES_MAX
    )


def test_an_identity_of_the_largest_size_passes_and_one_byte_more_does_not() -> None:
    largest = ReleaseHold(APP._replace(identity="i" * IDENTITY_BYTES_MAX), False, "n")
    assert decode(encode(largest)) == largest
    with pytest.raises((InvalidArgument, TooLarge)):
        encode(ReleaseHold(APP._replace(identity="i" * (IDENTITY_BYTES_MAX + 1)), False, "n"))


def test_grant_release_and_the_end_of_a_restore_decide_the_writer() -> None:
    deciding = [type(command) for command, data in GOLDEN if decides_writer(bytes.fromhex(data))]
    assert deciding == [AcquireWriter, ReleaseWriter, EndRestore]
    assert not decides_writer(b"")

"""A moment on a command line."""

from __future__ import annotations

import click
import pytest

from logservice.cli.shell.moment import moment_text, moment_us


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-25T16:40:00Z", 1_795_624_800),
        ("2026-11-25T16:40:00", 1_795_624_800),
        ("2026-11-25 17:40:00+01:00", 1_795_624_800),
        ("2026-11-25", 1_795_564_800),
        ("1795624800", 1_795_624_800),
        ("1795624800.5", 1_795_624_800.5),
        ("2026-11-25T16:40:00.000001Z", 1_795_624_800.000001),
    ],
)
def test_what_it_means(text: str, seconds: float) -> None:
    assert moment_us(text) == round(seconds * 1_000_000)


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "1e9", "2026-13-01", "1.1234567"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(click.BadParameter):
        moment_us(text)


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (1_795_752_000_000_001, "2026-11-27T04:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (2**63 - 1, str(2**63 - 1)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_a_moment_as_text(us: int, shown: str) -> None:
    assert moment_text(us) == shown

"""A length of time on a command line."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from logservice.cli.logctl import logctl
from logservice.cli.shell.duration import duration
from tests.cli.test_logctl_output import leaves


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1d", 86_400),
        ("0.5", 0.5),
        (".5", 0.5),
    ],
)
def test_taken(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0h", "-1", "nan", "inf", "1e3", "5 m", "m", "1w", "٣", "1_0", "9999999999"]
)
def test_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a time such as 90"):
        duration(text)


def test_every_option_that_is_a_time_takes_one() -> None:
    """A number of type float would take 0, which ends what the verb begins, and `nan`."""
    for path, command in leaves(logctl):
        for option in command.params:
            assert option.type is not click.FLOAT, (path, option.name)


def test_a_wrong_one_names_its_option() -> None:
    ended = CliRunner().invoke(logctl, ["shard", "pin", "7", "--for", "0"])
    assert ended.exit_code == 2
    assert "Invalid value for '--for': expected a time such as" in ended.output

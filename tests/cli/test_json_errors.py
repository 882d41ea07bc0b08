"""With `-o json` a command that fails says so on stderr as one JSON object."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
import pytest
from logservice_wire.errors import Outcome, Reason, error_for, error_table

from logservice.cli.logctl import logctl
from logservice.cli.main import logservice
from logservice.cli.shell import exit_codes
from logservice.cli.shell.told_error import form_of
from logservice.server.monitor.cluster.seen import Seen
from tests.client.fake_server import FakeCluster, Fault
from tests.client.running_fake import running_fake
from tests.documents import picture

FIELDS = ["reason", "message", "metadata", "retryable", "outcome"]


class Ended:
    """How a program ended that was run as a person runs it, and what it said."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        program: click.Command,
        *words: str,
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["program", *words])
        with pytest.raises(SystemExit) as caught:
            exit_codes.run(program, "logctl" if program is logctl else "logservice")
        self.code = caught.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def error(self) -> dict[str, Any]:
        """The only line of stderr."""
        (line,) = self.err.splitlines()
        found = json.loads(line)
        assert list(found) == FIELDS
        return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def running(*words: str, program: click.Command = logctl) -> Ended:
        return Ended(monkeypatch, capsys, program, *words)

    return running


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    with running_fake() as cluster:
        monkeypatch.setenv("LOGSERVICE_ENDPOINTS", ",".join(cluster.endpoints))
        yield cluster


def test_a_wrong_lsn(cluster: FakeCluster, run: Any) -> None:
    ended = run("read", "1", "--from", "99", "-o", "json")
    assert (ended.code, ended.out) == (exit_codes.REFUSED, "")
    found = ended.error
    assert (found["reason"], found["metadata"]["next_lsn"]) == ("BEYOND_TAIL", "1")
    assert (found["retryable"], found["outcome"]) == (False, "not_applied")


def test_no_such_log(cluster: FakeCluster, run: Any) -> None:
    """By name, and in every way to write the option."""
    for option in (["-o", "json"], ["-ojson"], ["--output", "json"], ["--output=json"]):
        ended = run("shard", "show", "nowhere", *option)
        assert ended.code == exit_codes.REFUSED
        assert ended.error["reason"] == "SHARD_NOT_FOUND"
        assert ended.error["retryable"] is False, "the exit code says that it is in vain"


def test_permission_denied(cluster: FakeCluster, run: Any) -> None:
    denied = error_for(Reason.PERMISSION_DENIED, "no", role="admin")
    cluster.faults.append(Fault(denied))
    ended = run("truncate", "1", "1", "-o", "json")
    assert ended.code == exit_codes.REFUSED
    assert ended.error == {
        "reason": "PERMISSION_DENIED",
        "message": "no",
        "metadata": {"role": "admin"},
        "retryable": False,
        "outcome": "not_applied",
    }


def test_nobody_can_be_reached(run: Any) -> None:
    """The hint for people, which names the doctor, is left out."""
    ended = run("--endpoints", "127.0.0.1:1", "--timeout", "1s", "shard", "show", "1", "-o", "json")
    assert ended.code == exit_codes.UNAVAILABLE
    found = ended.error
    assert (found["reason"], found["retryable"]) == ("NOT_READY", True)
    assert found["outcome"] == "not_applied"


def test_the_outcome_is_not_known(cluster: FakeCluster, run: Any) -> None:
    cluster.faults.append(Fault(lost="after"))
    ended = run("writer", "acquire", "1", "me", "-o", "json")
    assert ended.code == exit_codes.UNKNOWN
    assert (ended.error["reason"], ended.error["outcome"]) == ("UNKNOWN_OUTCOME", "unknown")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("shard", "show", "1", "--bad", "-o", "json"), "--bad"),
        (("shard", "show", "-o", "json"), "shard"),
        (("hold", "set", "1", "x", "many", "-o", "json"), "lsn"),
        (("shard", "show", "0", "-o", "json"), "shard"),
        (("nothing", "-o", "json"), None),
        (("shard", "show", "1", "2", "-o", "json"), None),
    ],
)
def test_a_command_line_that_is_wrong(run: Any, words: tuple[str, ...], field: str | None) -> None:
    ended = run(*words)
    assert ended.code == exit_codes.USAGE
    found = ended.error
    assert (found["reason"], found["outcome"]) == ("INVALID_ARGUMENT", "not_applied")
    assert found["metadata"].get("field") == field
    assert found["metadata"]["command"].startswith("logctl")
    assert found["message"]


@pytest.mark.parametrize(
    "words", [("hold", "list", "1"), ("--tls-cert", "/no/such/file", "hold", "list", "1")]
)
def test_options_of_logctl_itself(
    run: Any, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are judged before the command and its form are looked at."""
    monkeypatch.delenv("LOGSERVICE_ENDPOINTS", raising=False)
    ended = run(*words, "-o", "json")
    assert (ended.code, ended.error["reason"]) == (exit_codes.USAGE, "INVALID_ARGUMENT")


def test_the_other_program(run: Any) -> None:
    ended = run("mirror", "status", "-c", "/no/such/file", "-o", "json", program=logservice)
    assert (ended.code, ended.error["reason"]) == (exit_codes.USAGE, "INVALID_ARGUMENT")


def test_an_older_store_that_does_not_know_the_call(cluster: FakeCluster, run: Any) -> None:
    """The fake cluster has no Admin at all. The call had no effect, and never will."""
    ended = run("store", cluster.endpoints[0], "log-level", "debug", "-o", "json")
    assert ended.code == exit_codes.REFUSED
    found = ended.error
    assert (found["reason"], found["outcome"]) == ("VERB_REFUSED", "not_applied")
    assert "has an older program" in found["message"]


@pytest.mark.parametrize(
    "words", [("--for", "10m"), ("log-level", "--for", "10m"), ("log-level", "loud"), ("level",)]
)
def test_a_log_level_that_is_none(run: Any, words: tuple[str, ...]) -> None:
    ended = run("--endpoints", "h:1", "store", "h:1", *words, "-o", "json")
    assert (ended.code, ended.error["reason"]) == (exit_codes.USAGE, "INVALID_ARGUMENT")


def test_while_hakeeper_is_silent(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are what the stores know. That HAKeeper did not answer is an object, too."""
    silence = error_for(Reason.NOT_READY, "no leader")
    view = Seen((), picture.report(hakeeper=False), "")
    monkeypatch.setattr("logservice.cli.ctl.shard_list.state_of", lambda session: silence)
    monkeypatch.setattr("logservice.cli.ctl.outside_view.view_from_outside", lambda *_: view)
    ended = run("--endpoints", "h:1", "shards", "-o", "json")
    assert ended.code == exit_codes.UNAVAILABLE
    assert json.loads(ended.out)
    assert ended.error["reason"] == "NOT_READY"
    assert ended.error["message"].startswith("HAKeeper does not answer (NOT_READY).")


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason(
    reason: Reason, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    @click.option("-o")
    def command(o: str) -> None:
        raise error_for(reason, "a\x1b[1m\nb", forcible="true", key="\u202e")

    ended = Ended(monkeypatch, capsys, command, "-o", "json")
    found = ended.error
    row = error_table()[reason]
    assert (found["reason"], found["message"]) == (reason.value, "a\x1b[1m\nb")
    assert found["metadata"] == {"forcible": "true", "key": "\u202e"}
    assert found["outcome"] == row.outcome.value
    assert found["outcome"] in {one.value for one in Outcome}
    assert ended.code == exit_codes.exit_code(error_for(reason, "x"))
    assert not (found["retryable"] and ended.code in (exit_codes.REFUSED, exit_codes.USAGE))


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ("read 1", "table"),
        ("read 1 -o table", "table"),
        ("read 1 -o json -o table", "table"),
        ("read 1 -o table -o json", "json"),
        ("append 1 -- -o json", "table"),
        ("append 1 --output json x", "json"),
        ("append 1 -o", "table"),
        ("append 1 -o -o json", "table"),
        ("append 1 -o xml", "table"),
        ("hold set --override 1 json", "table"),
    ],
)
def test_which_form_is_meant(words: str, form: str) -> None:
    assert form_of(words.split()) == form

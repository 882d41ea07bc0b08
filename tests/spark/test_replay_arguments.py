"""The replay job's command line: what cannot be read is refused before a JVM starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark_logservice.replay import parse_arguments, source_options

from tests.papers import TestAuthority

REQUIRED = ["--endpoints", "a:1", "--shard", "1", "--out", "somewhere"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--from", "5", "--to", "3"], "begins at LSN 5 and ends before LSN 3"),
        (["--from", "5.5"], "startingLsn"),
        (["--to", "earliest"], "endingLsn"),
        (["--shard", "0"], "numbered from 1"),
        (["--endpoints", " "], "logservice.endpoints"),
        (["--partitions", "-1"], "--partitions"),
        (["--tls-cert", "c.pem"], "go together"),
        (["--with", "value"], "'columns': 'value' is there twice"),
        (["--with", ""], "'columns': ''"),
        (["--tls-ca", "/no/such/file"], "/no/such/file"),
    ],
)
def test_mistakes_end_the_job(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments([*REQUIRED, *given])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_more_columns_reach_the_source() -> None:
    assert "columns" not in source_options(parse_arguments(REQUIRED))
    found = source_options(parse_arguments([*REQUIRED, "--with", "key,headers"]))
    assert found == {"columns": "*,key,headers"}


def test_tls_files_and_zone_reach_the_source(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(TestAuthority().pem)
    options = parse_arguments(
        [*REQUIRED, "--tls-ca", str(authority), "--tls-server-name", "stores", "--zone", "eu/a"]
    )
    assert source_options(options) == {
        "logservice.tls.ca": str(authority),
        "logservice.tls.serverName": "stores",
        "logservice.zone": "eu/a",
    }
    assert source_options(parse_arguments(REQUIRED)) == {}


def test_the_environment_says_where_the_stores_are(monkeypatch: pytest.MonkeyPatch) -> None:
    without = ["--shard", "1", "--out", "somewhere"]
    with pytest.raises(SystemExit):
        parse_arguments(without)
    monkeypatch.setenv("LOGSERVICE_ENDPOINTS", "b:2")
    assert parse_arguments(without).endpoints == "b:2"
    assert parse_arguments(REQUIRED).endpoints == "a:1"
    monkeypatch.setenv("LOGSERVICE_TLS_CA", "/no/such/file")
    with pytest.raises(SystemExit):
        parse_arguments(without)
    assert source_options(parse_arguments([*without, "--tls-ca", ""])) == {"logservice.tls.ca": ""}


def test_an_empty_range_is_no_mistake() -> None:
    options = parse_arguments([*REQUIRED, "--from", "6", "--to", "6"])
    assert (options.start, options.end) == ("6", "6")

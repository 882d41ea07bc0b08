"""A token comes from a file that somebody else renews."""

from __future__ import annotations

from pathlib import Path

import pytest
from logservice_client import InvalidArgument, bounds, token_file
from logservice_client.environment import from_environment
from logservice_client.token_file import TokenFile


def shown(source: TokenFile) -> object:
    """What gRPC is given to send along."""
    found: list[object] = []
    source(None, lambda metadata, error: found.append((metadata, error)))  # type: ignore[arg-type]
    return found[0]


def test_the_newest_token_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TOKEN_LOOK_S: until then the file is not looked at."""
    now_s = 100.0
    monkeypatch.setattr(token_file.time, "monotonic", lambda: now_s)
    path = tmp_path / "token"
    path.write_text("one\n")
    source = TokenFile(str(path))
    assert shown(source) == ((("authorization", "Bearer one"),), None)
    path.write_text("another")
    now_s += bounds.TOKEN_LOOK_S / 2
    assert source.current() == "one"
    now_s += bounds.TOKEN_LOOK_S / 2
    assert source.current() == "another"
    assert "another" not in repr(source)
    # What cannot be read changes nothing, and is looked at again.
    for spoilt in ("", "a b", "ä", None):
        if spoilt is None:
            path.unlink()
        else:
            path.write_text(spoilt)
        now_s += bounds.TOKEN_LOOK_S
        assert source.current() == "another"
    path.write_text("third")
    now_s += bounds.TOKEN_LOOK_S
    assert source.current() == "third"


@pytest.mark.parametrize("text", [None, "", " \n", "a b", "a\nb", "ä"])
def test_a_file_without_a_token_is_refused_at_once(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidArgument, match=str(path)):
        TokenFile(str(path))


def test_a_token_is_bounded(tmp_path: Path) -> None:
    """TOKEN_FILE_BYTES_MAX"""
    path = tmp_path / "token"
    path.write_text("a" * bounds.TOKEN_FILE_BYTES_MAX)
    assert len(TokenFile(str(path)).current()) == bounds.TOKEN_FILE_BYTES_MAX
    path.write_text("a" * (bounds.TOKEN_FILE_BYTES_MAX + 1))
    with pytest.raises(InvalidArgument):
        TokenFile(str(path))


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc")
    _, tls = from_environment({"LOGSERVICE_ENDPOINTS": "s:1", "LOGSERVICE_TOKEN_FILE": str(path)})
    assert tls is not None
    token = tls.current().token
    assert token is not None
    assert token.current() == "abc"

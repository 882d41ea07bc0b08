"""`logservice audit`: read a store's audit log offline."""

from __future__ import annotations

from pathlib import Path

import click
from logservice_wire.errors import InvalidArgument

from logservice.cli import exit_codes
from logservice.cli.output import output_option, show_fields
from logservice.server.audit_chain import Anchor
from logservice.server.audit_chain import verify as verify_chain


@click.group()
def audit() -> None:
    """A store's audit log."""


@audit.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    metavar="SEQ:HASH",
    help="A line known from elsewhere: shows that it is still there. May be given several times.",
)
@output_option
def verify(directory: Path, anchors: tuple[str, ...], form: str) -> int:
    """Check that no line in DIRECTORY was changed, removed, added or moved. Exit code 1 if one was.

    The last number and hash that it prints are the anchor for the next time; keep them elsewhere:
    without one nobody can tell that the end was cut off.
    """
    found = verify_chain(directory, [_anchor(text) for text in anchors])
    show_fields(
        form,
        {
            "ok": found.ok,
            "files": found.files,
            "lines": found.lines,
            "first_seq": found.first_seq,
            "last_seq": found.last_seq,
            "last_hash": found.last_hash,
            "torn_bytes": found.torn_bytes,
            "damages": found.damages,
        },
    )
    return exit_codes.OK if found.ok else exit_codes.NEGATIVE


def _anchor(text: str) -> Anchor:
    seq, _, shown = text.partition(":")
    if not seq.isdecimal() or len(shown) != 64:
        raise InvalidArgument(f"{text!r} is not SEQ:HASH", field="anchor")
    return Anchor(int(seq), shown)

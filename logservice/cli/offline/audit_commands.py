"""`logservice audit`: read a store's audit log offline."""

from __future__ import annotations

import json
from pathlib import Path

import click
from logservice_wire.errors import InvalidArgument

from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, show_fields
from logservice.server.audit.chain import Anchor, Trail
from logservice.server.audit.chain import verify as verify_chain


@click.group()
def audit() -> None:
    """Verify a store's audit log."""


@audit.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    metavar="TRAIL:SEQ:HASH",
    help="A line known from elsewhere: shows that it is still there. May be given several times.",
)
@output_option
def verify(directory: Path, anchors: tuple[str, ...], form: str) -> int:
    """Check that nobody changed the lines in DIRECTORY.

    None was changed, removed, added or moved. Exit code 1 if one was.

    There are two trails, administration (audit-*.jsonl) and calls (calls-*.jsonl); both are
    checked, and one without a line is damage, too.

    The anchors that it prints are for the next time; keep them elsewhere: without one nobody can
    tell that the end was cut off, or that all of it was made anew. Of the anchors of a trail one at
    least must still be there, so take them more often than files are rotated away.
    """
    known = [_anchor(text) for text in anchors]
    found = {trail: verify_chain(directory, trail, known) for trail in Trail}
    ok = all(verdict.ok for verdict in found.values())
    shown = {
        trail.name.lower(): {
            "ok": verdict.ok,
            "files": verdict.files,
            "lines": verdict.lines,
            "first_seq": verdict.first_seq,
            "last_seq": verdict.last_seq,
            "anchor": f"{trail}:{verdict.last_seq}:{verdict.last_hash}",
            "closed": verdict.closed,
            "torn_bytes": verdict.torn_bytes,
            "damages": verdict.damages,
        }
        for trail, verdict in found.items()
    }
    if form == "json":
        say(json.dumps({"ok": ok, **shown}))
    else:
        for name, fields in shown.items():
            show_fields(form, {"trail": name, **fields})
            say()
    return exit_codes.OK if ok else exit_codes.NEGATIVE


def _anchor(text: str) -> Anchor:
    name, _, rest = text.partition(":")
    seq, _, shown = rest.partition(":")
    if name not in list(Trail) or not seq.isdecimal() or len(shown) != 64:
        raise InvalidArgument(f"{text!r} is not TRAIL:SEQ:HASH", field="anchor")
    return Anchor(Trail(name), int(seq), shown)

"""The pictures of the documents: SVG from small descriptions, and a screenshot of the page `/ui`.

The architecture is described here, in `BOXES` and `ARROWS`, and so is the log of
docs/concepts/log.md. The plot of docs/scale.md is made from its table, so picture and table cannot
differ. A test compares them with what this makes. The plots of docs/performance.md are the bench's
own. The screenshot needs Chromium and a cluster: see `tools/take_screenshot.py`.

    python -m tools.make_pictures            # writes docs/pictures/*.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"

INK, QUIET, LINE, PAPER = "#1f2933", "#52606d", "#9aa5b1", "#ffffff"
OURS, THEIRS, STEP = "#2f6fde", "#b8c2cc", "#d9480f"


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with a heading, lines below it, and the steps of an append that happen in it."""

    place: tuple[int, int, int, int]
    """Left, top, width, height."""
    heading: str = ""
    lines: Sequence[str] = ()
    fill: str = PAPER
    steps: str = ""


BOXES = (
    Box(
        (40, 16, 300, 80),
        "Database or tool",
        ("logservice_client", "one AppendStream per shard"),
        fill="#fff8e6",
        steps="1",
    ),
    Box(
        (360, 16, 300, 80),
        "PySpark job",
        ("pyspark_logservice", "one partition per range of LSNs"),
        fill="#fff8e6",
    ),
    Box((20, 138, 660, 448), fill="#f5f7fa"),
    Box(
        (40, 170, 620, 76),
        "server/",
        (
            "Log, HAKeeper and Admin over gRPC: who may do what, and how much",
            "status, metrics and the page /ui",
        ),
        fill="#e3effd",
        steps="2",
    ),
    Box(
        (40, 258, 620, 98),
        "nodehost/",
        (
            "requests and admission, then the engine: one pass for all shards of a disk,",
            "which steps, sends, writes one commit group, acknowledges and applies",
            "truncation, repair, comparison of replicas, HAKeeper's agent",
        ),
        fill="#e9e5fb",
        steps="35",
    ),
    Box((40, 368, 143, 104), "raft/", ("who decides", "(pure)"), fill="#def3e6", steps="4"),
    Box((199, 368, 143, 104), "rsm/", ("what an entry", "means (pure)"), fill="#def3e6", steps="7"),
    Box(
        (358, 368, 143, 104), "hakeeper/", ("what the cluster", "should be (pure)"), fill="#def3e6"
    ),
    Box((517, 368, 143, 104), "logdb/", ("shared segments,", "index, recovery"), fill="#fbe6e3"),
    Box(
        (40, 484, 620, 84),
        "layer 0",
        ("ids, entries, membership, bounds, invariants:", "what every layer above may import"),
        fill="#e4e7eb",
    ),
    Box((780, 226, 180, 72), "Another store", ("the same layers",), fill="#f5f7fa"),
    Box((780, 314, 180, 72), "Another store", ("the same layers",), fill="#f5f7fa"),
    Box(
        (780, 414, 180, 104),
        "Data directory",
        ("segments of all shards,", "LevelDB index,", "exported snapshots"),
        fill="#fbe6e3",
    ),
)


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line from one point to another; `both`: with two heads."""

    start: tuple[int, int]
    end: tuple[int, int]
    label: Sequence[str]
    label_at: tuple[int, int]
    both: bool = False
    steps: str = ""


ARROWS = (
    Arrow((190, 96), (190, 170), ("gRPC",), (200, 122), both=True),
    Arrow((510, 96), (510, 170), ("gRPC",), (520, 122), both=True),
    Arrow((660, 300), (778, 264), ("one framed TCP", "line per pair"), (688, 216), True, "6"),
    Arrow((660, 318), (778, 350), (), (0, 0), both=True),
    Arrow((660, 440), (778, 462), ("durable", "writes"), (692, 482)),
)

STEPS = (
    "1  records that wait share one block",
    "2  identity, rights and checksums",
    "3  admission: session, writer epoch, room",
    "4  term, index and LSN",
    "5  one commit group on disk",
    "6  a majority has it on disk: committed",
    "7  applied; the answer carries the LSNs",
)


def architecture() -> str:
    """The layers of a store, and the way of one append through them."""
    shapes = [*map(_box, BOXES), *map(_arrow, ARROWS)]
    shapes.append(_text(206, 159, "A store: one process, replicas of many shards", 14, QUIET))
    shapes.append(_text(40, 618, "The way of an append", 14, INK, bold=True))
    for place, step in enumerate(STEPS):
        x, y = 40 + 310 * (place % 3), 642 + 24 * (place // 3)
        shapes.append(_step(x + 9, y - 4, step[0]) + _text(x + 26, y, step[3:], 13, QUIET))
    return _picture(1000, 710, "The layers of a store and the way of one append", shapes)


def _box(box: Box) -> str:
    x, y, width, height = box.place
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" '
        f'fill="{box.fill}" stroke="{LINE}"/>'
    ]
    if box.heading:
        parts.append(_text(x + 14, y + 25, box.heading, 16, INK, bold=True))
    for number, line in enumerate(box.lines):
        parts.append(_text(x + 14, y + 46 + 19 * number, line, 13, QUIET))
    for number, step in enumerate(reversed(box.steps)):
        parts.append(_step(x + width - 18 - 24 * number, y + 19, step))
    return "".join(parts)


def _arrow(arrow: Arrow) -> str:
    (x1, y1), (x2, y2) = arrow.start, arrow.end
    heads = 'marker-end="url(#head)"' + (' marker-start="url(#head)"' if arrow.both else "")
    parts = [
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{QUIET}" '
        f'stroke-width="1.6" {heads}/>'
    ]
    x, y = arrow.label_at
    for number, line in enumerate(arrow.label):
        parts.append(_text(x, y + 16 * number, line, 12, QUIET))
    parts += [_step((x1 + x2) // 2, (y1 + y2) // 2, step) for step in arrow.steps]
    return "".join(parts)


def _step(x: int, y: int, number: str) -> str:
    return (
        f'<circle cx="{x}" cy="{y}" r="9" fill="{STEP}"/>'
        f'<text x="{x}" y="{y + 4}" font-size="12" font-weight="bold" fill="{PAPER}" '
        f'text-anchor="middle">{number}</text>'
    )


LOG_FIRST, LOG_LAST = 3, 14
HOLD_LSN, TRUNCATED_LSN, READ_LSN = 5, 7, 9
"""The log of docs/concepts/log.md: what is truncated, and what a hold keeps."""


def log() -> str:
    """A log as a row of records, and what points at them."""
    left, top, width, step = 40, 96, 62, 74
    shapes = [_text(left, 34, "A log: LSNs grow to the right", 16, INK, bold=True)]

    def middle(lsn: int) -> float:
        return left + step * (lsn - LOG_FIRST) + width / 2

    for lsn in range(LOG_FIRST, LOG_LAST + 1):
        gone = lsn < HOLD_LSN
        fill = PAPER if gone else "#fff8e6" if lsn <= TRUNCATED_LSN else "#e3effd"
        dashes = ' stroke-dasharray="4 4"' if gone else ""
        shapes.append(
            f'<rect x="{middle(lsn) - width / 2:g}" y="{top}" width="{width}" height="54" rx="6" '
            f'fill="{fill}" stroke="{LINE}"{dashes}/>'
        )
        shapes.append(_text(middle(lsn), top + 33, str(lsn), 16, QUIET, anchor="middle"))
    for lsn, below, lines in (
        (LOG_FIRST, True, ("truncated:", "read them, and you", "are told TRUNCATED")),
        (HOLD_LSN, True, ('hold "replica":', "5, 6 and 7 stay for it")),
        (TRUNCATED_LSN, False, ("what the database truncated up to",)),
        (READ_LSN, True, ("a reader goes on", "at any LSN that is left")),
        (LOG_LAST - 1, True, ("the newest records are on", "a majority of the disks")),
    ):
        shapes += _mark(middle(lsn), top + 54 if below else top, below, lines)
    end = middle(LOG_LAST) + width / 2
    shapes.append(_text(end + 96, top + 22, "writer", 14, INK, bold=True, anchor="middle"))
    shapes.append(_text(end + 96, top + 42, "epoch 4", 13, QUIET, anchor="middle"))
    shapes.append(
        f'<line x1="{end + 62:g}" y1="{top + 27}" x2="{end + 10:g}" y2="{top + 27}" '
        f'stroke="{STEP}" stroke-width="2" marker-end="url(#head)"/>'
    )
    return _picture(1080, 250, "A log, a hold and a writer", shapes)


def _mark(x: float, y: float, below: bool, lines: Sequence[str]) -> list[str]:
    """A pointer to a record, and the words beside its other end."""
    end = y + 26 if below else y - 22
    pointer = (
        f'<line x1="{x:g}" y1="{end:g}" x2="{x:g}" y2="{y + (4 if below else -4):g}" '
        f'stroke="{QUIET}" marker-end="url(#head)"/>'
    )
    first = end + 18 if below else end - 6
    return [pointer] + [
        _text(x - 28, first + 17 * number, line, 13, QUIET) for number, line in enumerate(lines)
    ]


def scale_rows(page: str) -> list[tuple[str, float]]:
    """The rows of the table "How long the loop stands still": what, and milliseconds."""
    table = page.partition("## How long the loop stands still")[2].partition("![")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return [(what.strip(), float(ms)) for what, ms in cells[2:]]


def scale(rows: Sequence[tuple[str, float]]) -> str:
    """How long each piece of work holds up the event loop, on a logarithmic axis."""
    left, right, top, step = 330, 900, 70, 30
    bottom = top + step * len(rows)

    def at(ms: float) -> float:
        return left + (right - left) * (log10(ms) + 1) / 4

    shapes = [
        _text(24, 34, "100 stores, 10 000 shards: milliseconds on the loop", 16, INK, bold=True)
    ]
    for ms, colour in ((0.1, LINE), (1, LINE), (10, LINE), (20, STEP), (100, LINE), (1000, LINE)):
        x = at(ms)
        shapes.append(
            f'<line x1="{x:.1f}" y1="{top - 8}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>'
        )
        shapes.append(_text(x, bottom + 18, f"{ms:g}", 12, QUIET, anchor="middle"))
    for number, (what, ms) in enumerate(rows):
        y = top + step * number
        shapes.append(_text(left - 12, y + 15, what, 13, INK, anchor="end"))
        width = at(ms) - left
        shapes.append(
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="20" rx="2" fill="{OURS}"/>'
        )
        shapes.append(_text(at(ms) + 7, y + 15, f"{ms:g}", 12, QUIET))
    return _picture(1000, bottom + 34, "What holds up the event loop", shapes)


def _text(
    x: float, y: float, text: str, size: int, fill: str, *, bold: bool = False, anchor: str = ""
) -> str:
    more = (' font-weight="bold"' if bold else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"{more}>{escape(text)}</text>'


def _picture(width: int, height: int, title: str, shapes: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="Helvetica, Arial, sans-serif" role="img">',
            f"<title>{escape(title)}</title>",
            f'<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{QUIET}"/>'
            "</marker></defs>",
            f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>',
            *shapes,
            "</svg>\n",
        ]
    )


def pictures() -> dict[str, str]:
    """File names below docs/pictures and what is to be in them."""
    return {
        "architecture.svg": architecture(),
        "log.svg": log(),
        "scale.svg": scale(scale_rows((ROOT / "docs" / "scale.md").read_text("utf-8"))),
    }


if __name__ == "__main__":
    for name, text in pictures().items():
        (PICTURES / name).write_text(text, "utf-8")

"""measuring: goes through the rows: opens each, lets the sides of its bouts take turns, keeps the
figures.

A row that fails says so in its result, and the next one is measured; a peer that fails is left out
from then on, and ours goes on. Whatever ends the run, what was measured until then is in its file.
"""

from __future__ import annotations

import datetime
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.peers.peer import Unavailable
from bench.probes.environment import machine
from bench.probes.raw_disk import look
from bench.results.result import Piece, Result, Run
from bench.rows.appends import NotTaken
from bench.rows.row import OURS, Bout, Figure, Row, Setting, Turn

Say = Callable[[str], object]


def now() -> str:
    """Local time."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def words(error: BaseException) -> str:
    """An error in words; of a group, its first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


class Measuring:
    """One piece of a run. Its result is written to `path` after each row."""

    def __init__(
        self, run: Run, path: Path, setting: Setting, options: Mapping[str, str], say: Say
    ) -> None:
        """`say` is told what goes on."""
        self._run, self._path, self._setting, self._say = run, path, setting, say
        directory = setting.directory
        self._piece = Piece(now(), now(), machine(), dict(options), look(directory))
        run.pieces.append(self._piece)

    def rows(self, rows: Sequence[Row], done: Callable[[Row, Result], object]) -> None:
        """Measure them one after the other; `done` is told of each."""
        for row in rows:
            result = Result(row.key, now())
            try:
                measure_row(row, self._setting, self._say, result)
            except Exception as error:  # noqa: BLE001 - the other rows are measured all the same
                result.error = words(error)
            except BaseException:
                result.error = "stopped"
                raise
            finally:
                result.ended = now()
                result.notes = list(dict.fromkeys(self._setting.notes))
                if result.rounds or result.error != "stopped":
                    self._run.rows[row.key] = result
                    self._piece.rows.append(row.key)
                self._piece.ended = now()
                self._run.write(self._path)
            done(row, result)

    def end(self) -> None:
        """Look at the disk once more."""
        self._piece.disk_after = look(self._setting.directory)
        self._piece.ended = now()
        self._run.write(self._path)


def measure_row(row: Row, setting: Setting, say: Say, result: Result) -> None:
    """Open a row and fill its result; what was measured is in it whatever is raised."""
    setting.notes.clear()
    place = Path(tempfile.mkdtemp(prefix=f"{row.key}-", dir=setting.directory))
    say(f"{row.key}: set-up")
    try:
        with row.open(replace(setting, directory=place)) as bouts:
            for bout in bouts:
                if not bout.fallback or not result.rounds:
                    _bout(row, bout, setting, say, result)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _bout(row: Row, bout: Bout, setting: Setting, say: Say, result: Result) -> None:
    with ExitStack() as stack:
        say(f"{row.key}: {bout.name or OURS}, set-up")
        try:
            turns = stack.enter_context(bout.open())
        except Unavailable as error:
            result.missing[bout.name] = str(error)
            return
        except NotTaken:
            return
        rounds = row.rounds(setting.rounds)
        for number in range(rounds):
            figures: dict[str, Figure] = {}
            result.rounds.append(figures)
            for side, turn in turns.items():
                say(f"{row.key}: {side}, round {number + 1} of {rounds}")
                try:
                    figures[side] = setting.runner.run(_run(turn))
                except Exception as error:
                    if side == OURS:
                        raise
                    result.missing[side] = f"failed in round {number + 1}: {words(error)}"
                    return


async def _run(turn: Turn) -> Figure:
    return await turn()

"""An answer that is found in steps."""

from __future__ import annotations

from collections.abc import Generator

from logservice.sliced import Sliced


def test_the_answer_comes_at_the_end() -> None:
    done: list[int] = []

    def steps() -> Generator[None, None, int]:
        for number in range(3):
            done.append(number)
            yield
        return len(done)

    assert Sliced(steps()).at_a_stretch() == 3
    assert list(Sliced(steps()).steps) == [None] * 3

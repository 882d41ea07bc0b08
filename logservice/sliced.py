"""Sliced: an answer that takes too long to be found at a stretch.

A state machine answers a question about everything with a `Sliced`. Whoever asked lets other work
run between two steps, so the answer is of no single moment, like one that comes in pages.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class Sliced(Generic[T]):
    """`steps` returns the answer at its end."""

    def __init__(self, steps: Generator[None, None, T]) -> None:
        self.steps = steps

    def at_a_stretch(self) -> T:
        """The answer as of now."""
        while True:
            try:
                next(self.steps)
            except StopIteration as ended:
                answer: T = ended.value
                return answer

"""shard_filter: which shards `logctl shards` is about.

Theory of operation. It is asked about one shard at a time, by what the source of the row knows of
it. HAKeeper knows everything. While it is silent, what the stores remember of it has no labels, and
of a shard that no store remembers there is neither name nor state. To leave such a row out, or to
show it, would be a guess. So a filter that a row cannot answer is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from logservice_wire.errors import NotReady


@dataclass(frozen=True, slots=True)
class ShardFilter:
    """`shard`: only that one. `states`: one of them; none for any. `labels`: all of them, where an
    empty value stands for any. `prefix`: how the name begins.
    """

    shard: int | None = None
    states: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""

    @property
    def by_content(self) -> bool:
        """Whether it takes more than the id to tell."""
        return bool(self.states or self.labels or self.prefix)

    def takes(
        self,
        shard: int,
        name: str | None,
        state: str | None,
        labels: Mapping[str, str] | None,
    ) -> bool:
        """Whether the shard is wanted. None stands for what is not known; raises NotReady if the
        answer depends on that.
        """
        if self.shard not in (None, shard):
            return False
        for option, wanted, known in (
            ("--prefix", self.prefix, name),
            ("--state", self.states, state),
            ("--label", self.labels, labels),
        ):
            if wanted and known is None:
                raise NotReady(
                    f"who answers does not know what {option} asks of shard {shard}:"
                    f" leave {option} out, or come again when HAKeeper answers",
                    shard=str(shard),
                )
        return (
            (name or "").startswith(self.prefix)
            and (not self.states or state in self.states)
            and all(
                key in (labels or {}) and text in ("", (labels or {})[key])
                for key, text in self.labels.items()
            )
        )

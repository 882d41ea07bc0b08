"""Who answers a look-up: HAKeeper, and the store's own directory when HAKeeper is silent."""

from __future__ import annotations

from typing import Any

import pytest
from logservice_wire.errors import InvalidArgument, LogServiceError, NotReady

from logservice import bounds
from logservice.hakeeper.answers import views
from logservice.hakeeper.answers.views import ShardView
from logservice.ids import ReplicaId, ShardId
from logservice.nodehost.agent.lookups import Lookups
from logservice.versions import KNOWN
from tests.hakeeper.model import Model
from tests.nodehost.test_directory import Follower

ONE = ShardId(1)


class FakeClient:
    """HAKeeper as a store reaches it; `failure` makes it fail. `asked`: the limits of the calls."""

    answers_here = False

    def __init__(self, model: Model) -> None:
        self.model = model
        self.failure: LogServiceError | None = None
        self.asked: list[float] = []

    async def shard(
        self, shard: ShardId, timeout_s: float, *, stale: bool = False
    ) -> ShardView | None:
        self.asked.append(timeout_s)
        if self.failure is not None:
            raise self.failure
        found = self.model.state.shards.get(shard)
        return views.shard_view(self.model.state, found) if found is not None else None

    async def resolve(self, name: str, timeout_s: float) -> ShardView | None:
        return await self.shard(ONE if name == "log-1" else ShardId(99), timeout_s)


@pytest.fixture
def rig() -> tuple[Lookups, FakeClient, Follower]:
    model = Model(3, versions=KNOWN)
    model.start()
    follower = Follower()
    follower.beat(model.state)
    hakeeper: Any = FakeClient(model)
    lookups = Lookups(
        hakeeper, follower.directory, lambda store: f"{store}:9", lambda _: ReplicaId(0)
    )
    return lookups, hakeeper, follower


async def test_hakeeper_answers_while_it_can(rig: tuple[Lookups, FakeClient, Follower]) -> None:
    lookups, hakeeper, _ = rig
    for found in (
        await lookups.shard(ONE, 9.0, fresh=False),
        await lookups.shard(ONE, 9.0, fresh=True),
        await lookups.resolve("log-1", 9.0, fresh=False),
    ):
        assert (found.index, found.age_s) == (0, 0)
        assert found.view is not None
        assert found.view.replicas[0].health == "alive"
    assert hakeeper.asked == [bounds.DIRECTORY_PATIENCE_S, 9.0, bounds.DIRECTORY_PATIENCE_S]
    assert (await lookups.shard(ShardId(99), 9.0, fresh=False)).view is None


async def test_the_directory_answers_when_hakeeper_does_not(
    rig: tuple[Lookups, FakeClient, Follower],
) -> None:
    """DIRECTORY_PATIENCE_S; at once after DIRECTORY_SILENT_S, at its edge."""
    lookups, hakeeper, follower = rig
    hakeeper.failure = NotReady("nobody")
    for asked, waited_s in ((1, 0.0), (2, bounds.DIRECTORY_SILENT_S), (2, 0.001)):
        follower.clock.advance(waited_s)
        found = await lookups.shard(ONE, 9.0, fresh=False)
        assert len(hakeeper.asked) == asked
        assert (found.index, found.age_s) == (follower.directory.index, follower.directory.age_s())
        assert found.view is not None
        assert (found.view.name, found.view.leader_store) == ("log-1", "")
        assert set(found.view.client_addresses) == {"s1:9", "s2:9", "s3:9"}
    assert (await lookups.resolve("log-1", 9.0, fresh=False)).index == follower.directory.index
    for asking in (
        lookups.shard(ONE, 9.0, fresh=True),
        lookups.shard(ShardId(99), 9.0, fresh=False),
        lookups.resolve("log-1", 9.0, fresh=True),
        lookups.resolve("other", 9.0, fresh=False),
    ):
        with pytest.raises(NotReady):
            await asking


async def test_a_final_error_is_not_hidden(rig: tuple[Lookups, FakeClient, Follower]) -> None:
    lookups, hakeeper, _ = rig
    hakeeper.failure = InvalidArgument("wrong")
    with pytest.raises(InvalidArgument):
        await lookups.shard(ONE, 9.0, fresh=False)


async def test_a_name_is_asked_for_when_the_directory_is_older_than_the_list(
    rig: tuple[Lookups, FakeClient, Follower],
) -> None:
    """INV-DIRECTORY-2."""
    lookups, hakeeper, _ = rig
    version = hakeeper.model.state.access_version
    assert await lookups.name_of(ONE, version) == "log-1"
    assert hakeeper.asked == []
    assert await lookups.name_of(ONE, version + 1) == "log-1"
    assert hakeeper.asked == [bounds.HAKEEPER_ATTEMPT_TIMEOUT_S]
    hakeeper.failure = NotReady("nobody")
    with pytest.raises(NotReady):
        await lookups.name_of(ONE, version + 1)

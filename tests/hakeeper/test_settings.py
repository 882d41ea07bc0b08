"""Settings of the cluster that can be changed, and the end of a failed first start."""

from __future__ import annotations

import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import Joining
from logservice.hakeeper.commands.verbs import ChangeSettings, ForgetStore, SetStoreMode, StoreMode
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId
from logservice.outcome import Applied
from logservice.versions import KNOWN
from tests.hakeeper.model import Model, rejected
from tests.hakeeper.test_drain import started, why

ONE = ShardId(1)


def settings(model: Model) -> tuple[int, int, str]:
    state = model.state
    return state.store_timeout_ticks, state.default_replicas, state.joining.value


def test_a_changed_store_timeout_is_the_one_that_counts() -> None:
    model = started(4, timeout=100)
    assert model.propose(ChangeSettings(store_timeout_ticks=1000)) == Applied()
    model.kill("s1")
    model.run(500)
    assert not model.state.operators
    model.propose(ChangeSettings(store_timeout_ticks=100, force=True))
    model.run_until(model.healthy, 400)


def test_what_is_not_named_stays() -> None:
    model = started(3, shards=0)
    assert settings(model) == (100, 3, "automatic")
    model.propose(ChangeSettings(default_replicas=1))
    assert settings(model) == (100, 1, "automatic")
    model.propose(ChangeSettings(joining="by-verb"))
    assert settings(model) == (100, 1, "by-verb")
    assert model.state.joining is Joining.BY_VERB
    assert isinstance(model.propose(proposals.CreateShard(ONE, "", 0)), Applied)
    assert len(model.state.shards[ONE].members.voters) == 1


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        (ChangeSettings(store_timeout_ticks=bounds.HAKEEPER_STORE_TIMEOUT_TICKS_MIN), True),
        (ChangeSettings(store_timeout_ticks=bounds.HAKEEPER_STORE_TIMEOUT_TICKS_MIN - 1), False),
        (ChangeSettings(store_timeout_ticks=bounds.HAKEEPER_STORE_TIMEOUT_TICKS_MAX), True),
        (ChangeSettings(store_timeout_ticks=bounds.HAKEEPER_STORE_TIMEOUT_TICKS_MAX + 1), False),
        (ChangeSettings(default_replicas=bounds.HAKEEPER_REPLICAS_MAX), True),
        (ChangeSettings(default_replicas=bounds.HAKEEPER_REPLICAS_MAX + 1), False),
        (ChangeSettings(joining="sometimes"), False),
    ],
)
def test_the_edges_of_settings(change: ChangeSettings, *, allowed: bool) -> None:
    model = started(3, shards=0)
    model.run(25)
    before = settings(model)
    outcome = model.propose(change)
    if allowed:
        assert isinstance(outcome, Applied)
    else:
        assert rejected(outcome) is Reason.INVALID_ARGUMENT
        assert settings(model) == before


def test_a_wrong_field_changes_none_of_them() -> None:
    model = started(3, shards=0)
    before = settings(model)
    change = ChangeSettings(store_timeout_ticks=500, default_replicas=5, joining="sometimes")
    assert rejected(model.propose(change)) is Reason.INVALID_ARGUMENT
    assert settings(model) == before


def test_a_timeout_that_would_expire_a_living_store_is_refused() -> None:
    model = started(3, shards=0, timeout=100)
    model.kill("s3")
    model.run(60)
    change = ChangeSettings(store_timeout_ticks=30)
    assert why(model.propose(change)).startswith("s3 was last heard ")
    forced = ChangeSettings(store_timeout_ticks=30, force=True)
    assert model.propose(forced) == Applied()


def test_no_verb_is_applied_before_the_first_configuration() -> None:
    model = Model(3, versions=KNOWN)
    model.state.cluster_version = 2
    for verb in (
        ChangeSettings(default_replicas=1),
        ForgetStore(StoreId("s1")),
        SetStoreMode(StoreId("s1"), StoreMode.DRAINING),
    ):
        assert rejected(model.propose(verb)) is Reason.NOT_READY


def failed_start(model: Model) -> None:
    """A first start in which the log shard's replicas cannot be started for too long."""
    for store in model.stores.values():
        store.refuses.add(ONE)
    with pytest.raises(AssertionError):
        model.start(shards=1)
    model.run_until(
        lambda: model.state.phase is Phase.BOOTSTRAP_FAILED,
        bounds.HAKEEPER_BOOTSTRAP_TICKS_MAX + 200,
    )


def test_a_failed_first_start_ends_by_itself_when_a_majority_runs() -> None:
    model = Model(3, versions=KNOWN)
    failed_start(model)
    for store in list(model.stores.values())[:2]:
        store.refuses.clear()
    model.run_until(lambda: model.state.phase is Phase.RUNNING, 300)
    for store in model.stores.values():
        store.refuses.clear()
    model.run_until(model.healthy, 300)
    assert model.state.flags == {}


def test_a_failed_first_start_ends_by_a_verb_as_well() -> None:
    model = Model(3, versions=KNOWN)
    failed_start(model)
    outcome = model.propose(proposals.SetPhase(Phase.COMMANDS_RECEIVED))
    assert outcome == Applied(data=b"commands_received")
    model.run(50)
    assert model.state.phase is Phase.COMMANDS_RECEIVED
    for store in model.stores.values():
        store.refuses.clear()
    model.run_until(model.healthy, 300)


def test_at_version_1_a_failed_first_start_waits_for_a_person() -> None:
    model = Model(3)
    failed_start(model)
    for store in model.stores.values():
        store.refuses.clear()
    model.run(400)
    assert model.state.phase is Phase.BOOTSTRAP_FAILED
    assert HAKEEPER_SHARD in model.shards

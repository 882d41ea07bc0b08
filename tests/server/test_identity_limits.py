"""What an identity may use: its own quota, that of every identity, the configuration, in this
order.
"""

from __future__ import annotations

from typing import Any

from logservice.hakeeper.commands.quotas import IdentityQuota
from logservice.nodehost.quota_table import QuotaTable
from logservice.server.edge.identity_limits import ConfiguredLimits, IdentityLimits
from logservice.server.edge.quota import QuotaLimits

CONFIGURED = QuotaLimits(100, 50, 0.5, 0.0)


def limits(**more: Any) -> tuple[IdentityLimits, QuotaTable]:
    table = QuotaTable()
    return IdentityLimits(ConfiguredLimits(CONFIGURED, 10, 20, 30, **more), table), table


def test_each_value_comes_from_the_first_that_says_it() -> None:
    found, table = limits()
    assert found.of("me") == CONFIGURED
    assert (found.connections_of("me"), found.address_connections) == (10, 20)
    table.update(
        1,
        (
            IdentityQuota("", requests_per_s=7, rpcs_max=9, connections_max=4),
            IdentityQuota("me", requests_per_s=0, bytes_per_s=5, connections_max=6),
        ),
    )
    assert found.of("me") == QuotaLimits(9, 50, 0, 5)
    assert found.of("you") == QuotaLimits(9, 50, 7, 0)
    assert (found.connections_of("me"), found.connections_of("you")) == (6, 4)
    table.update(2, (IdentityQuota("", address_connections_max=3),))
    assert found.of("me") == CONFIGURED
    assert (found.connections_of("me"), found.address_connections) == (10, 3)


def test_nobody_gets_more_connections_than_there_are() -> None:
    found, table = limits()
    table.update(1, (IdentityQuota("", connections_max=99, address_connections_max=99),))
    assert (found.connections_of("me"), found.address_connections) == (30, 30)


def test_in_plaintext_the_one_identity_may_have_all_connections() -> None:
    found, table = limits(one_identity=True)
    table.update(1, (IdentityQuota("", connections_max=1, rpcs_max=2),))
    assert found.connections_of("") == 30
    assert found.of("").rpcs_max == 2


def test_who_follows_is_told_of_every_change() -> None:
    found, table = limits()
    told: list[int] = []
    found.follow(lambda: told.append(found.version))
    table.update(4, ())
    table.update(5, ())
    assert told == [4, 5]


def test_the_configuration_is_told_in_the_same_form() -> None:
    found, _ = limits()
    assert found.configured() == IdentityQuota("", 1, 0, 100, 50, 10, 20)

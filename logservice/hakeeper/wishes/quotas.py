"""Quotas: which values may be set by verb, and for whom."""

from __future__ import annotations

from logservice_wire.errors import Reason
from msgspec.structs import replace

from logservice import bounds
from logservice.hakeeper.commands.quotas import (
    EVERY_IDENTITY,
    QUOTA_COUNTS,
    QUOTA_NAMES,
    QUOTA_RATES,
    IdentityQuota,
)
from logservice.hakeeper.commands.verbs import SetQuota
from logservice.hakeeper.state import State
from logservice.hakeeper.wishes.refusal import wrong
from logservice.identity import IdentityKind, parse_uri
from logservice.outcome import Applied, Outcome, Rejected

_LOWEST = {
    "requests_per_s": 1,
    "bytes_per_s": bounds.QUOTA_BYTES_PER_S_MIN,
    "address_connections_max": bounds.QUOTA_ADDRESS_CONNECTIONS_MIN,
}
_HIGHEST = {
    "requests_per_s": bounds.QUOTA_REQUESTS_PER_S_MAX,
    "bytes_per_s": bounds.QUOTA_BYTES_PER_S_MAX,
}


def apply_quota(state: State, verb: SetQuota) -> Outcome:
    """All of it, or nothing; `value` of the outcome is the version that has it.

    Rejected: INVALID_ARGUMENT{field}; BUSY when QUOTA_IDENTITIES_MAX identities have one.
    """
    refused = _refusal(verb)
    if refused is not None:
        return refused
    identity = verb.quota.identity
    named = {
        name: value for name in QUOTA_NAMES if (value := getattr(verb.quota, name)) is not None
    }
    before = state.quotas.get(identity, IdentityQuota(identity))
    after = replace(before, **dict.fromkeys(verb.clear), **named)
    if after == before:
        return Applied(value=state.quotas_version)
    if identity not in state.quotas and len(state.quotas) >= bounds.QUOTA_IDENTITIES_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.QUOTA_IDENTITIES_MAX)})
    if after.says_nothing:
        del state.quotas[identity]
    else:
        state.quotas[identity] = after
    state.quotas_version += 1
    return Applied(value=state.quotas_version)


def _refusal(verb: SetQuota) -> Rejected | None:
    quota = verb.quota
    found = parse_uri(quota.identity)
    if quota.identity and (found is None or found.kind is not IdentityKind.CLIENT):
        form = "spiffe://<trust domain>/cluster/<cluster id>/client/<name>"
        return wrong("identity", f"expected {form}, or nothing for every identity")
    for name in verb.clear:
        if name not in QUOTA_NAMES or getattr(quota, name) is not None:
            return wrong("clear", f"{name} is set, too, or none of {', '.join(QUOTA_NAMES)}")
    if quota.says_nothing and not verb.clear:
        return wrong("quota", "nothing is named")
    if quota.identity != EVERY_IDENTITY and quota.address_connections_max is not None:
        return wrong("address_connections_max", "it is about addresses: name no identity")
    for name in QUOTA_RATES:
        rate, low = getattr(quota, name), _LOWEST[name]
        if rate and not low <= rate <= _HIGHEST[name]:
            return wrong(name, f"0 for no limit, or {low} to {_HIGHEST[name]}")
    for name in QUOTA_COUNTS:
        count, low = getattr(quota, name), _LOWEST.get(name, 1)
        if count is not None and not low <= count <= bounds.QUOTA_COUNT_MAX:
            return wrong(name, f"{low} to {bounds.QUOTA_COUNT_MAX}; a denial shuts somebody out")
    return None

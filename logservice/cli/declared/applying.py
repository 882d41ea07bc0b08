"""Applying: a plan is carried out step by step, and can be stopped and begun again.

Theory of operation. A step is one change of the plan and one request to HAKeeper, so it happens or
does not. Before each, what it is about is asked for again. If it has the value that the plan
started from, the change is made. If it is as wanted already, because somebody else made it so or an
earlier run did, there is nothing to do. Anything else is somebody else's doing, and the run stops:
a person has to look at a new plan.

INV-DECLARED-2: a step overwrites nothing that the plan has not shown. A log is changed by the
revision that was just read. Settings, quotas and rules have no such number in their requests, so
what is changed between the question and the request, a moment later, is not noticed: of settings
and quotas the keys that the step names are overwritten, and no others; of grants and denials the
roles that it names come or go, and no others.

The first refusal ends the run. There is nothing to take back: what is done is as declared, and the
same file applied again goes on with what is left.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from logservice_client import LogClient
from logservice_wire.errors import ShardExists, StaleEpoch, VerbRefused
from logservice_wire.v1 import hakeeper_pb2

from logservice.access import ALL
from logservice.cli.declared.declaration import POLICY
from logservice.cli.declared.plan import Change, Kind, different
from logservice.cli.declared.present import log_of, quotas_of, roles_of, settings_of

_LOOKS_MAX = 5
"""Revisions of one log that a step looks at: who changes it more often has to stop first."""

_CREATION_SINCE = 2
"""The first cluster version that knows requests by their ids."""

DONE, ALREADY = "done", "as wanted already"


class Applying:
    """`run` once."""

    def __init__(
        self,
        client: LogClient,
        timeout_s: float,
        outcomes: list[str],
        told: Callable[[str], None],
    ) -> None:
        """`outcomes` gets one word for each change that is done, in the order of the plan, and
        `told` a line. `timeout_s`: for each request.
        """
        self._client = client
        self._keeper = client.hakeeper
        self._timeout_s = timeout_s
        self._told = told
        self._outcomes = outcomes
        self._version = 1

    async def run(self, changes: list[Change], cluster_version: int) -> None:
        """Carry all of them out. Raises what the first refusal raises; VerbRefused when the cluster
        is not what the plan shows.
        """
        self._version = cluster_version
        for number, change in enumerate(changes, 1):
            at = f"[{number}/{len(changes)}] {change.title}"
            outcome = await self._step(change)
            self._outcomes.append(outcome)
            self._told(f"{at}: {outcome}")

    async def _step(self, change: Change) -> str:
        if change.kind is Kind.SETTINGS:
            return await self._settings(change)
        if change.kind in (Kind.GRANT, Kind.DENIAL):
            return await self._rule(change)
        if change.kind is Kind.QUOTA:
            return await self._quota(change)
        return await (self._create(change) if change.verb == "add" else self._log(change))

    async def _settings(self, change: Change) -> str:
        state = await self._keeper.cluster_state(timeout=self._timeout_s)
        left = _left(change, settings_of(state.settings))
        if not left:
            return ALREADY
        await self._keeper.change_settings(**left, timeout=self._timeout_s)
        return DONE

    async def _create(self, change: Change) -> str:
        values: dict[str, Any] = {name: new for name, (_, new) in change.fields.items()}
        new_ids = self._version >= _CREATION_SINCE
        try:
            shard = await self._keeper.create_shard(
                shard_id=change.shard,
                name=change.name,
                replicas=values.get("replicas", 0),
                policy=_policy(hakeeper_pb2.ShardPolicy(zone_rule="best-effort"), values),
                labels=values.get("labels"),
                request_id=uuid.uuid4().hex if new_ids else "",
                witnesses=values.get("witnesses", 0),
                waive_g1=bool(values.get("witnesses")),
                timeout=self._timeout_s,
            )
        except ShardExists as exists:
            # Another run was faster, perhaps of the same file.
            shard = exists.number("shard")
            found = log_of(
                await self._keeper.shard_info(shard, fresh=True, timeout=self._timeout_s)
            )
            if found.name != change.name or different(values, found.values):
                raise
            return ALREADY
        # A log that accepts nothing yet is not what was declared.
        await self._client.shard(shard).connect(timeout=self._timeout_s)
        return f"{DONE}, shard {shard}"

    async def _log(self, change: Change) -> str:
        for _ in range(_LOOKS_MAX):
            info = await self._keeper.shard_info(change.shard, fresh=True, timeout=self._timeout_s)
            found = log_of(info)
            left = _left(change, {"name": found.name, **found.values})
            if not left:
                return ALREADY
            try:
                await self._keeper.change_shard(
                    change.shard,
                    name=left.get("name", ""),
                    replicas=left.get("replicas", 0),
                    policy=_policy(info.policy, left),
                    labels=left.get("labels"),
                    revision=info.revision,
                    timeout=self._timeout_s,
                )
            except StaleEpoch as changed:
                stale = changed
            else:
                return DONE
        raise stale

    async def _rule(self, change: Change) -> str:
        key = change.name, change.scope
        listed = await self._keeper.access_list(timeout=self._timeout_s)
        grants = change.kind is Kind.GRANT
        found = roles_of(listed.grants if grants else listed.denials)
        left = _left(change, {"roles": list(found.get(key, ()))})
        if not left:
            return ALREADY
        old, new = set(found.get(key, ())), set(left["roles"])
        if grants:
            await self._keeper.change_access(
                *key, grant=sorted(new - old), revoke=sorted(old - new), timeout=self._timeout_s
            )
        else:
            # "all" takes the place of other roles by itself. When it ends, HAKeeper denies what is
            # named beside it in one step.
            gone = set() if ALL in new else old - new
            await self._keeper.change_denial(
                *key, deny=sorted(new - old), undeny=sorted(gone), timeout=self._timeout_s
            )
        return DONE

    async def _quota(self, change: Change) -> str:
        listed = await self._keeper.access_list(timeout=self._timeout_s)
        now = quotas_of(listed).get(change.name, {})
        left = _left(change, {name: now.get(name) for name in change.fields})
        if not left:
            return ALREADY
        await self._keeper.set_quota(
            change.name,
            **{name: value for name, value in left.items() if value is not None},
            clear=[name for name, value in left.items() if value is None],
            timeout=self._timeout_s,
        )
        return DONE


def _left(change: Change, now: Mapping[str, object]) -> dict[str, Any]:
    """What is still to change. Raises VerbRefused: INV-DECLARED-2."""
    left: dict[str, Any] = {}
    for name, (old, new) in change.fields.items():
        if now[name] == new:
            continue
        if now[name] != old:
            raise VerbRefused(
                f"{change.title} was changed since the plan was made; look at a new one",
                why=f"{name} was {old}, and is {now[name]}",
            )
        left[name] = new
    return left


def _policy(
    policy: hakeeper_pb2.ShardPolicy, values: Mapping[str, Any]
) -> hakeeper_pb2.ShardPolicy | None:
    """`policy` with what is wanted of it; None when nothing is."""
    wanted = {name: values[name] for name in POLICY if name in values}
    for name, value in wanted.items():
        if isinstance(value, Mapping):
            policy.learners.clear()
            policy.learners.update(value)
        else:
            setattr(policy, name, value)
    return policy if wanted else None

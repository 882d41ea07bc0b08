"""A store that runs takes up another configuration: every setting is classified, and what is taken
up reaches the part that it is about.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from logservice_wire.errors import InvalidArgument, NotReady, Reason, VerbRefused
from logservice_wire.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc

from logservice import bounds, config
from logservice.clock import SystemClock
from logservice.config import StoreConfig
from logservice.nodehost.replica.read_limits import ReadClass
from logservice.pause import Pause
from logservice.server.audit.chain import Trail
from logservice.server.edge.quota import Quota, QuotaLimits
from logservice.server.log_level import LogLevel
from logservice.server.reload.effects import EFFECTS, Effect, changed, values, with_reloaded
from logservice.server.reload.reloads import Reloads, digest_of
from logservice.server.store import Store
from logservice.settable_rate import SettableRate
from tests.server.secured import (
    ADMIN,
    OWNER,
    called,
    channel_of,
    configured,
    credentials,
    lay_out,
    papers_of,
    uri,
)
from tests.server.served import block, typed
from tests.server.test_audit import told
from tests.waiting import eventually
from tools import list_settings

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def _level() -> Any:
    root = logging.getLogger()
    before = root.level
    root.setLevel("INFO")
    yield
    root.setLevel(before)


@asynccontextmanager
async def reloadable(
    folder: Path, more: str = "", words: list[str] | None = None
) -> AsyncIterator[tuple[Store, Path]]:
    """A store and the file that it reads again. `words`: of --set, which may change meanwhile."""
    lay_out(folder)
    configured(folder, more)
    path, words = folder / "store.toml", words if words is not None else []
    store = Store(config.load(path, words), read=lambda: config.load(path, words))
    await store.start()
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    await called(store.client_address, credentials(OWNER))
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)
        yield store, path
    finally:
        await store.stop()


ANY = """
[store]
store_id = "s1"
cluster_id = "c"
data_directories = ["data"]
[listen]
insecure_plaintext = true
[bootstrap]
hakeeper_members = [{ store_id = "s1", peer_address = "127.0.0.1:1" }]
"""


def _any_config() -> StoreConfig:
    return config.parse(ANY)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


# --- the table ------------------------------------------------------------------------------------


async def test_every_setting_is_classified() -> None:
    """INV-RELOAD-1"""
    assert sorted(dict(values(_any_config()))) == sorted(EFFECTS)


async def test_the_page_says_what_the_code_says() -> None:
    page = list_settings.DOCUMENT.read_text(encoding="utf-8")
    assert page == list_settings.document(), "run `make settings`"
    for setting, effect in EFFECTS.items():
        section, _, key = setting.partition(".")
        table = page.partition(f"### [{section}]\n")[2].partition("### [")[0]
        [row] = [line for line in table.splitlines() if line.startswith(f"| `{key}` |")]
        assert row.endswith(f"| {list_settings.WORDS[effect]} |")


CHANGES: dict[str, tuple[str, Callable[[Store], object], object]] = {
    "store.labels": ('{ zone = "z9" }', lambda store: store._description().labels, {"zone": "z9"}),
    "storage.scrub_interval_s": (
        "77.0",
        lambda store: store._parts.scrubbers[0].timer.interval_s,
        77.0,
    ),
    "storage.scrub_bytes_per_s": (
        "1048576",
        lambda store: store._parts.directories[0].used.budget.bytes_per_s,
        1048576,
    ),
    "storage.compare_interval_s": (
        "78.0",
        lambda store: store._parts.comparer.timer.interval_s,
        78.0,
    ),
    "storage.keys_interval_s": ("7.5", lambda store: store._keys.looks.seconds, 7.5),
    "truncation.interval_s": (
        "5.0",
        lambda store: schedule(store)._visits.trigger.interval.total_seconds(),
        5.0,
    ),
    "logging.level": ('"error"', lambda store: logging.getLogger().level, logging.ERROR),
    "limits.rpc_timeout_default_s": ("3.0", lambda store: limits(store).rpc_timeout_default_s, 3.0),
    "limits.rpc_timeout_max_s": ("30.0", lambda store: limits(store).rpc_timeout_max_s, 30.0),
    "limits.read_bytes_default": ("4096", lambda store: limits(store).read_bytes_default, 4096),
    "limits.read_bytes_max": ("8192", lambda store: limits(store).read_bytes_max, 8192),
    "limits.stream_blocks_inflight_max": (
        "7",
        lambda store: limits(store).stream_blocks_inflight_max,
        7,
    ),
    "limits.identity_rpcs_max": ("11", lambda store: store.gate.limits_of(ADMIN).rpcs_max, 11),
    "limits.identity_streams_max": (
        "12",
        lambda store: store.gate.limits_of(ADMIN).streams_max,
        12,
    ),
    "limits.identity_requests_per_s": (
        "1300.0",
        lambda store: store.gate.limits_of(ADMIN).requests_per_s,
        1300.0,
    ),
    "limits.identity_bytes_per_s": (
        "1e9",
        lambda store: store.gate.limits_of(ADMIN).bytes_per_s,
        1e9,
    ),
    "limits.identity_connections_max": (
        "14",
        lambda store: store._client_port._connections._identity_max(ADMIN),
        14,
    ),
    "limits.address_connections_max": ("15", lambda store: connections(store).address, 15),
    "limits.identity_undelivered_bytes_max": (
        "1048576",
        lambda store: connections(store).undelivered_of_identity,
        1048576,
    ),
    "limits.catch_up_bytes_per_s": (
        "2097152",
        lambda store: store._parts.host.catch_up.bytes_per_s,
        2097152,
    ),
    "limits.tail_read_bytes_per_s": (
        "3145728",
        lambda store: store._parts.host.reads.of[ReadClass.TAIL].bytes_per_s,
        3145728,
    ),
    "limits.catch_up_read_bytes_per_s": (
        "4194304",
        lambda store: store._parts.host.reads.of[ReadClass.CATCH_UP].bytes_per_s,
        4194304,
    ),
    "tls.reload_interval_s": ("0.5", lambda store: store._tls.looks.seconds, 0.5),
    "security.admins": (
        f'["{ADMIN}", "{uri("client", "second")}"]',
        lambda store: sorted(store.gate.identities.admins),
        [ADMIN, uri("client", "second")],
    ),
    "audit.data": ("true", lambda store: store._client_port.audit.data, True),
}
"""Every setting that is taken up: another value, where it has to arrive, and what is there then."""


def schedule(store: Store) -> Any:
    return next(iter(store._company._schedules.values()))


def limits(store: Store) -> Any:
    context = store._client_port._context
    assert context.limits is store.reloads.config.limits
    return context.limits


def connections(store: Store) -> Any:
    return store._client_port._connections._limits


async def test_every_setting_that_is_taken_up_reaches_its_part(tmp_path: Path) -> None:
    """INV-RELOAD-1"""
    wanted = {setting for setting, effect in EFFECTS.items() if effect is Effect.RELOAD}
    assert set(CHANGES) == wanted
    ring = tmp_path / "keys.toml"
    ring.touch(0o600)
    key = base64.b64encode(bytes(32)).decode()
    ring.write_text(f'active = "k"\n[keys]\nk = "{key}"\n')
    words = ["storage.keys_file=keys.toml"]
    more = """
        [truncation]
        interval_s = 10.0
        [logging]
        level = "info"
        [audit]
        data = false
    """
    async with reloadable(tmp_path, more, words) as (store, _):
        before = {setting: probe(store) for setting, (_, probe, _) in CHANGES.items()}
        words += [f"{setting}={text}" for setting, (text, _, _) in CHANGES.items()]
        found = await store.reloads.reload()
        assert set(found.taken_up) == wanted
        assert (found.needs_restart, found.first_start) == ((), ())
        for setting, (_, probe, value) in CHANGES.items():
            assert before[setting] != value, setting
            assert probe(store) == value, setting
        later = store._parts.settings  # by which a directory that is added later is opened
        assert (later.scrub_interval_s, later.scrub_bytes_per_s) == (77.0, 1048576)
        assert store._company._interval_s == 5.0
        assert (await store.reloads.reload()).taken_up == ()


# --- what a reload does ---------------------------------------------------------------------------


async def test_what_needs_a_restart_is_named_and_stays_as_it_was(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as (store, path):
        first = store.reloads.in_effect
        assert (first.digest, first.waiting) == (digest_of(store.reloads.config), ())
        edit(path, "tick_ms = 10", "tick_ms = 20")
        edit(path, '["data"]', '["data", "more"]')
        edit(path, "replicas = 1", "replicas = 3")
        looked = await store.reloads.reload(dry_run=True)
        assert looked.needs_restart == ("store.data_directories", "raft.tick_ms")
        assert (looked.taken_up, looked.first_start) == ((), ("bootstrap.replicas",))
        assert store.reloads.in_effect == first, "a dry run changes nothing"
        edit(path, "reload_interval_s = 0.05", "reload_interval_s = 0.06")
        found = await store.reloads.reload()
        assert found.taken_up == ("tls.reload_interval_s",)
        assert found.needs_restart == looked.needs_restart
        now = store.reloads.in_effect
        assert now.waiting == looked.needs_restart
        assert now.digest != first.digest
        assert now.since_us >= first.since_us
        assert store.reloads.config.raft.tick_ms == 10
        status = store._monitor.reporter.status(0)
        assert (status.config_digest, status.config_waiting) == (now.digest, now.waiting)
        # Taken back, nothing waits, and what is in effect is older than this reload.
        edit(path, "tick_ms = 20", "tick_ms = 10")
        edit(path, '["data", "more"]', '["data"]')
        assert (await store.reloads.reload()).needs_restart == ()
        assert (store.reloads.in_effect.waiting, store.reloads.in_effect.since_us) == (
            (),
            now.since_us,
        )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[store]", "[store", "not TOML"),
        ("[store]", "x = " + "[" * 20_000, "not TOML"),
        ("[store]", "[store]\ncolour = 1", "store.colour: unknown key"),
        ("tick_ms = 10", "tick_ms = 0", "raft.tick_ms"),
        ('"client-ca.pem"', '""', "tls.client_ca"),
        ('store_id = "s1"', 'store_id = "s9"', "store.store_id: the file is that of 's9'"),
        ('cluster_id = "c"', 'cluster_id = "d"', "store.cluster_id: the file is that of 'd'"),
    ],
)
async def test_a_wrong_file_is_refused_as_a_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, old: str, new: str, problem: str
) -> None:
    """INV-RELOAD-2"""
    async with reloadable(tmp_path, '[logging]\nlevel = "info"') as (store, path):
        first, config_before = store.reloads.in_effect, store.reloads.config
        right = path.read_text()
        edit(path, 'level = "info"', 'level = "error"')
        edit(path, old, new)
        with pytest.raises(InvalidArgument, match=problem[:8]) as refused:
            await store.reloads.reload()
        assert problem in refused.value.message
        assert (store.reloads.in_effect, store.reloads.config) == (first, config_before)
        assert logging.getLogger().level == logging.INFO
        store.reloads.ask()
        await eventually(lambda: "nothing of it was taken up" in caplog.text)
        path.unlink()
        with pytest.raises(InvalidArgument, match="cannot read"):
            await store.reloads.reload()
        path.write_text(right.replace('level = "info"', 'level = "warning"'))
        store.reloads.ask()
        await eventually(lambda: logging.getLogger().level == logging.WARNING)
        await called(store.client_address, credentials(OWNER))


async def test_inv_reload_3_the_administrators_of_another_cluster_get_no_rights_here(
    tmp_path: Path,
) -> None:
    async with reloadable(tmp_path) as (store, path):
        before = store.gate.identities.admins
        other = uri("client", "stranger")
        edit(path, 'cluster_id = "c"', 'cluster_id = "d"')
        edit(path, ADMIN, other)
        with pytest.raises(InvalidArgument, match="nothing of it is taken up"):
            await store.reloads.reload()
        assert other not in store.gate.identities.admins
        assert store.gate.identities.admins == before


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _long(path: Path) -> None:
    path.write_bytes(b"#" * (bounds.CONFIG_FILE_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("put", "problem"),
    [
        (_fifo, "it is no regular file"),
        (_endless, "it is no regular file"),
        (Path.mkdir, "it is no regular file"),
        (_long, "it is longer than"),
    ],
)
async def test_what_is_no_file_ends_no_reload(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, put: Callable[[Path], None], problem: str
) -> None:
    """It is said, as for a wrong file, and the next reload is one again. Reaches
    CONFIG_FILE_BYTES_MAX.
    """
    async with reloadable(tmp_path, '[logging]\nlevel = "info"') as (store, path):
        right = path.with_suffix(".right")
        path.rename(right)
        put(path)
        store.reloads.ask()
        await eventually(lambda: problem in caplog.text)
        os.replace(path, path.with_suffix(".wrong"))
        edit(right, 'level = "info"', 'level = "warning"')
        right.rename(path)
        store.reloads.ask()
        await eventually(lambda: logging.getLogger().level == logging.WARNING)


async def test_a_file_system_that_does_not_answer_ends_no_reload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reaches RELOAD_READ_S, made small. A thread that hangs is one, however often one asks."""
    monkeypatch.setattr(bounds, "RELOAD_READ_S", 0.01)
    answers = threading.Event()

    def read() -> StoreConfig:
        answers.wait(60)
        return _any_config()

    reloads = Reloads(_any_config(), read)
    reloads.attach(lambda _: None)
    with pytest.raises(InvalidArgument, match="takes longer than"):
        await reloads.reload()
    with pytest.raises(InvalidArgument, match="still being read"):
        await reloads.reload()
    answers.set()
    monkeypatch.setattr(bounds, "RELOAD_READ_S", 60.0)
    assert reloads._reading is not None
    await reloads._reading
    assert (await reloads.reload()).taken_up == ()


async def test_two_settings_of_which_one_waits_have_to_fit_what_is_in_effect(
    tmp_path: Path,
) -> None:
    """The file fits; without what needs a restart it does not, so nothing of it is taken up."""
    text = "[limits]\nread_bytes_default = 1000\nread_bytes_max = 2000\n"
    async with reloadable(tmp_path, text) as (store, path):
        before = store.reloads.config
        edit(path, "[limits]", "[limits]\nmemory_bytes_max = 1")
        with pytest.raises(InvalidArgument):
            await store.reloads.reload()
        assert store.reloads.config == before


async def test_what_comes_together_is_one_more_reload(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as (store, path):
        reads: list[int] = []
        store.reloads._read = lambda: reads.append(1) or config.load(path)  # type: ignore[func-returns-value]
        for number in range(100):
            edit(path, "reload_interval_s = 0.0", f"reload_interval_s = 0.0{number}")
            store.reloads.ask()
        final = config.load(path).tls.reload_interval_s
        await eventually(lambda: store._tls.looks.seconds == final)
        assert 1 <= len(reads) <= 2
        many = await asyncio.gather(*(store.reloads.reload() for _ in range(20)))
        assert all(one.taken_up == () for one in many)


async def test_before_it_serves_and_without_a_file_there_is_no_reload() -> None:
    reloads = Reloads(_any_config(), None)
    with pytest.raises(VerbRefused):
        await reloads.reload()
    early = Reloads(_any_config(), _any_config)
    with pytest.raises(NotReady):
        await early.reload()
    taken: list[StoreConfig] = []
    early.ask()
    early.attach(taken.append)
    running = asyncio.create_task(early.run())
    await eventually(lambda: taken)
    running.cancel()


async def test_directories_that_verbs_have_added_wait_for_no_restart() -> None:
    """The file names another one, a reload says that it waits, and a verb adds it."""
    file, used = [ANY], ["data"]
    reloads = Reloads(_any_config(), lambda: config.parse(file[0]))
    reloads.attach(lambda _: None, lambda: used)
    file[0] = ANY.replace('["data"]', '["data", "more"]')
    await reloads.reload()
    assert reloads.in_effect.waiting == ("store.data_directories",)
    used.append("more")
    assert reloads.in_effect.waiting == ()
    used.remove("data")
    assert reloads.in_effect.waiting == ("store.data_directories",)


async def test_only_an_administrator_reloads_and_the_audit_log_has_it(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as (store, path):
        request = admin_pb2.ReloadConfigRequest()
        edit(path, "reload_interval_s = 0.05", "reload_interval_s = 0.07")
        async with channel_of(store, papers_of("stranger")) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await admin_pb2_grpc.AdminStub(channel).ReloadConfig(request, timeout=60)
            assert typed(caught.value).reason is Reason.PERMISSION_DENIED
        assert store._tls.looks.seconds == 0.05
        async with channel_of(store, OWNER) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            found = await stub.ReloadConfig(request, timeout=60)
            assert list(found.taken_up) == ["tls.reload_interval_s"]
            status = await stub.GetStoreStatus(admin_pb2.GetStoreStatusRequest(), timeout=60)
            assert found.config.digest == store.reloads.in_effect.digest
            assert status.config.digest  # as of the newest look at the status
            path.write_text("x")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.ReloadConfig(request, timeout=60)
            assert typed(caught.value).reason is Reason.INVALID_ARGUMENT
    audit = tmp_path / "data" / "audit"
    lines = [one for one in told(audit, Trail.ADMINISTRATION) if one["what"] == "ReloadConfig"]
    assert [(one["who"], one.get("outcome", "begun")) for one in lines] == [
        (ADMIN, "begun"),
        (ADMIN, "ok"),
        (ADMIN, "begun"),
        (ADMIN, "INVALID_ARGUMENT"),
    ]


async def test_an_administrator_who_is_taken_out_of_the_file_is_none_at_once(
    tmp_path: Path,
) -> None:
    """Also on a connection that is there, and in a stream that is open."""
    async with reloadable(tmp_path) as (store, path):
        second = uri("client", "second")
        async with (
            channel_of(store, OWNER) as owner,
            channel_of(store, papers_of("second")) as other,
        ):
            log = log_pb2_grpc.LogStub(other)
            asked = log_pb2.GetShardStatusRequest(shard_id=1)
            with pytest.raises(grpc.aio.AioRpcError):
                await log.GetShardStatus(asked, timeout=60)
            owned: Any = log_pb2_grpc.LogStub(owner)
            session = await owned.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
            stream = owned.AppendStream()
            blocks = [
                log_pb2.AppendStreamRequest.Block(sequence=number, block=block(b"x"))
                for number in (1, 2)
            ]
            opened = log_pb2.AppendStreamRequest.Open(
                shard_id=1, session_id=session.session_id, session_nonce=session.nonce
            )
            await stream.write(log_pb2.AppendStreamRequest(open=opened, blocks=blocks[:1]))
            assert (await stream.read()).acks[0].sequence == 1
            edit(path, f'admins = ["{ADMIN}"]', f'admins = ["{second}"]')
            assert (await store.reloads.reload()).taken_up == ("security.admins",)
            await log.GetShardStatus(asked, timeout=60)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await owned.GetShardStatus(asked, timeout=60)
            assert typed(caught.value).reason is Reason.PERMISSION_DENIED
            await stream.write(log_pb2.AppendStreamRequest(blocks=blocks[1:]))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.read()
                await stream.read()
            assert typed(caught.value).reason is Reason.PERMISSION_DENIED


# --- the parts ------------------------------------------------------------------------------------


async def test_the_level_that_a_person_set_outlives_a_reload() -> None:
    kept = LogLevel("info")
    kept.set("debug", 60)
    kept.configure("warning")
    assert (kept.level, kept.configured) == ("debug", "warning")
    assert kept.ends_in_s > 0
    kept._over()
    assert kept.level == "warning"
    kept.configure("error")
    assert (kept.level, kept.configured) == ("error", "error")
    kept.set("info")
    kept.configure("info")
    assert (kept.level, kept.ends_in_s) == ("info", 0)
    kept.configure("debug")
    assert kept.level == "debug", "what a person set is the configured one by now, and no more"


async def test_the_setting_of_the_cluster_outlives_a_reload() -> None:
    rate = SettableRate(SystemClock(), 100, 1.0)
    rate.change(7)
    assert not rate.configure(200)
    assert rate.bytes_per_s == 7
    assert rate.change(0)
    assert rate.bytes_per_s == 200
    assert rate.configure(300)
    assert rate.bytes_per_s == 300


async def test_a_quota_changes_under_way() -> None:
    quota = Quota(QuotaLimits(rpcs_max=1), clock=lambda: 0.0)
    quota.begin_rpc()
    quota.change(QuotaLimits(rpcs_max=2, bytes_per_s=10))
    quota.begin_rpc()
    assert (quota.paced, quota.counts_bytes, quota.rpcs) == (True, True, 2)
    quota.change(QuotaLimits())
    assert not quota.paced


async def test_a_pause_ends_by_itself_or_by_others() -> None:
    pause = Pause()
    pause.end()
    await pause.sleep(0)
    await pause.sleep(0.001)
    sleeping = asyncio.create_task(pause.sleep(3600))
    await asyncio.sleep(0)
    pause.end()
    pause.end()
    await sleeping
    cancelled = asyncio.create_task(pause.sleep(3600))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_only_what_differs_is_taken() -> None:
    before = _any_config()
    after = config.parse(
        ANY, ["raft.tick_ms=7", "logging.level=error", "limits.read_bytes_default=9"]
    )
    assert changed(before, after) == [
        "raft.tick_ms",
        "logging.level",
        "limits.read_bytes_default",
    ]
    used = with_reloaded(before, after)
    assert changed(before, used) == ["logging.level", "limits.read_bytes_default"]
    assert digest_of(before) == digest_of(_any_config()) != digest_of(used)

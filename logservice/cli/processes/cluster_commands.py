"""`logservice cluster`: a local cluster of detached processes; `local_cluster` does the work."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from logservice.cli.shell.duration import duration
from logservice.cli.shell.output import output_option, say, show_rows

_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("logservice-cluster"),
    show_default=True,
    envvar="LOGSERVICE_CLUSTER_DIR",
    help="Holds configuration, data, logs and pid files of every store.",
)


@click.group()
def cluster() -> None:
    """Run a cluster of processes on this machine.

    It is ready to use in seconds.
    """


@cluster.command()
@_directory
@click.option(
    "--stores", default=3, show_default=True, type=click.IntRange(1, 9), help="How many processes."
)
@click.option(
    "--shards",
    default=1,
    show_default=True,
    type=click.IntRange(0, 4096),
    help="Logs at the start.",
)
@click.option("--zones", default=0, help="Label the stores with so many zones, in turn.")
@click.option(
    "--data-dirs",
    type=click.IntRange(1, bounds.DATA_DIRECTORIES_MAX),
    help="Data directories of each store; replicas are spread over them.",
)
@click.option("--segment-bytes", type=int, help="Size of a segment file.")
@click.option("--store-timeout", type=duration, help="Silence before a store is replaced.")
@click.option("--tls", is_flag=True, help="With certificates of its own, made in DIR/certs.")
@click.option(
    "--timeout", default=60.0, show_default=True, help="Seconds to wait until it is ready."
)
@output_option
def up(
    directory: Path,
    stores: int,
    shards: int,
    zones: int,
    data_dirs: int | None,
    segment_bytes: int | None,
    store_timeout: float | None,
    tls: bool,
    timeout: float,
    form: str,
) -> None:
    """Start the cluster in DIR; the first time, create it.

    It waits until the cluster accepts appends, and says on stderr what for.
    """
    if (directory / "cluster.json").exists():
        local = LocalCluster.open(directory)
    else:
        settings: dict[str, dict[str, object]] = {}
        if data_dirs is not None:
            names = [f"data-{number}" for number in range(1, data_dirs + 1)]
            settings["store"] = {"data_directories": names}
        if segment_bytes is not None:
            settings["storage"] = {"segment_bytes": segment_bytes}
        if store_timeout is not None:
            settings["hakeeper"] = {"store_timeout_s": store_timeout}
        local = LocalCluster.create(
            directory, stores=stores, shards=shards, zones=zones, settings=settings, tls=tls
        )
    local.up(timeout, lambda wanted: say(f"waiting for {wanted}", err=True))
    _show(local, form)
    admin = next(iter(local.stores.values())).admin
    say(f"console: http://{admin}/ui", err=form == "json")
    say(_exports(local), err=form == "json")


@cluster.command()
@_directory
def env(directory: Path) -> None:
    """Print what a shell has to export to use the cluster.

    Its stores and, with TLS, its administrator: eval "$(logservice cluster env)".
    """
    say(_exports(LocalCluster.open(directory)))


@cluster.command()
@_directory
@click.option("--kill", is_flag=True, help="With SIGKILL: at once, nothing is handed over.")
def down(directory: Path, kill: bool) -> None:
    """Stop every store; the data stays."""
    local = LocalCluster.open(directory)
    if kill:
        local.kill_all()
    else:
        local.down()


@cluster.command()
@_directory
@output_option
def status(directory: Path, form: str) -> int:
    """Show which stores run. Exit code 1 when one does not."""
    local = LocalCluster.open(directory)
    _show(local, form)
    return exit_codes.OK if all(local.pids().values()) else exit_codes.NEGATIVE


@cluster.command("add-store")
@_directory
@click.argument("store", required=False)
@click.option("--zone", default="", help="Its label `zone`.")
def add_store(directory: Path, store: str | None, zone: str) -> None:
    """Start one more store, which HAKeeper may use for replicas.

    For those of shard 0, too, once you have said `logctl admit STORE --hakeeper`.
    """
    say(LocalCluster.open(directory).add(store, zone=zone))


@cluster.command()
@_directory
@click.argument("store")
def start(directory: Path, store: str) -> None:
    """Start a store that does not run."""
    LocalCluster.open(directory).start(store)


@cluster.command()
@_directory
@click.argument("store")
def stop(directory: Path, store: str) -> None:
    """Stop a store gracefully: it hands its leaderships away first."""
    _was_running(LocalCluster.open(directory).stop(store), store)


@cluster.command()
@_directory
@click.argument("store")
def kill(directory: Path, store: str) -> None:
    """SIGKILL a store, as if its machine had lost power."""
    _was_running(LocalCluster.open(directory).kill(store), store)


def _was_running(was_running: bool, store: str) -> None:
    if not was_running:
        raise InvalidArgument(f"{store} was not running", field="store")


def _exports(local: LocalCluster) -> str:
    lines = (f"export {name}={shlex.quote(text)}" for name, text in local.environment().items())
    return "\n".join(lines)


def _show(local: LocalCluster, form: str) -> None:
    pids = local.pids()
    rows = [
        {
            "store": store_id,
            "running": pids[store_id] is not None,
            "pid": pids[store_id],
            "client": place.client,
            "peer": place.peer,
            "log": str(local.process(store_id).log_path),
        }
        for store_id, place in local.stores.items()
    ]
    title = f"cluster {local.cluster_id} in {local.directory}"
    show_rows(form, rows, title, main=("store", "running", "pid", "client", "log"))

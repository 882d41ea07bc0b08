"""`logservice store`: one store process."""

from __future__ import annotations

from pathlib import Path

import click
from logservice_wire.errors import LogServiceError

from logservice.cli import exit_codes


@click.group()
def store() -> None:
    """Run one store process."""


@store.command()
@click.option(
    "-c",
    "--config",
    "config_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file; deploy/store.example.toml documents every key.",
)
def run(config_path: Path) -> int:
    """Run a store in the foreground until SIGTERM or SIGINT."""
    from logservice import config
    from logservice.server.process import run_store

    loaded = config.load(config_path)
    try:
        return run_store(loaded)
    except (LogServiceError, OSError) as error:
        click.echo(f"error: {loaded.store.store_id} cannot start: {error}", err=True)
        return exit_codes.CANNOT_START


@store.command()
@click.option(
    "-c",
    "--config",
    "config_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file; deploy/store.example.toml documents every key.",
)
def check_config(config_path: Path) -> None:
    """Check a configuration file; prints nothing when it is right."""
    from logservice import config

    config.load(config_path)

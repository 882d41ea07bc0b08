"""`logservice store`: one store process."""

from __future__ import annotations

from pathlib import Path

import click


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

    return run_store(config.load(config_path))


@store.command()
@click.option(
    "-c", "--config", "config_path", required=True, type=click.Path(path_type=Path, dir_okay=False)
)
def check_config(config_path: Path) -> None:
    """Check a configuration file; prints nothing when it is right."""
    from logservice import config

    config.load(config_path)

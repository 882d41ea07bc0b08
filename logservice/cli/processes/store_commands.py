"""`logservice store`: one store process."""

from __future__ import annotations

import asyncio
import http.client
import signal
import ssl
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

import click
from logservice_wire.errors import LogServiceError

from logservice.cli.shell import exit_codes
from logservice.cli.shell.config_option import config_option
from logservice.cli.shell.output import say

if TYPE_CHECKING:
    from logservice.config import StoreConfig

_PROBE_TIMEOUT_S: Final = 3.0
"""It is below the time-out of a container's health check, so that this command gives the answer."""

_config = config_option("TOML file; deploy/store.example.toml documents every key.")
_set = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Set a key beside the file, so that several stores can share one.",
)


@click.group()
def store() -> None:
    """Run one store process, or look after one."""


@store.command()
@_config
@_set
def run(config_path: Path, assignments: tuple[str, ...]) -> int:
    """Run a store in the foreground until SIGTERM or SIGINT.

    SIGHUP makes it read its configuration again; `logctl store STORE reload` does the same and says
    what was taken up.
    """
    before = signal.signal(signal.SIGTERM, _stop_before_start)
    hung_up: list[int] = []
    # Without a handler SIGHUP would end the process. The store takes it over when it starts.
    signal.signal(signal.SIGHUP, lambda number, _: hung_up.append(number))
    try:
        from logservice import config
        from logservice.server.tls import ciphers

        def read() -> StoreConfig:
            found = config.load(config_path, assignments)
            config.check_files(found)
            return found

        loaded = read()
        ciphers.choose(loaded.tls.ciphers)
        # It imports gRPC, which reads its suites of ciphers then.
        from logservice.server.process import run_store

        try:
            return run_store(loaded, read, lambda: bool(hung_up))
        except (LogServiceError, OSError) as error:
            say(f"error: {loaded.store.store_id} cannot start: {error}", err=True)
            return exit_codes.CANNOT_START
    finally:
        signal.signal(signal.SIGTERM, before)
        # What is left is the end of the process, with an exit code of its own.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _stop_before_start(number: int, frame: FrameType | None) -> NoReturn:
    """End the process by SIGTERM until the store handles signals itself, which may take seconds on
    a busy machine.

    Without a handler the first process of a container would not even end: the kernel drops a signal
    that such a process does not handle, and the container would be killed at the end of its grace
    period.
    """
    raise SystemExit(exit_codes.OK)


@store.command()
@_config
@_set
def check_config(config_path: Path, assignments: tuple[str, ...]) -> None:
    """Check a configuration file, and what it names.

    Certificates, keys and the keys of tokens are read.

    What is allowed and most likely not meant is a warning, and no failure.
    """
    from logservice import config

    loaded = config.load(config_path, assignments)
    config.check_files(loaded)
    if loaded.tls.enabled:
        from logservice.server.tls.admin_tls import AdminTls
        from logservice.server.tls.store_tls import StoreTls

        tls = StoreTls(loaded, lambda: None)
        for alarm in (*tls.alarms(), *AdminTls(loaded, tls).alarms()):
            say(f"warning: {alarm}", err=True)
    if loaded.tokens.enabled:
        from logservice.server.tokens.issuer_keys import IssuerKeys

        asyncio.run(IssuerKeys(loaded.tokens).first())
    for doubt in config.doubts(loaded):
        say(f"warning: {doubt}", err=True)


@store.command()
@click.argument("address", default="127.0.0.1:7601")
@click.option("--ready", is_flag=True, help="Ask whether it is ready, not only whether it lives.")
@click.option("--tls", is_flag=True, help="The port speaks HTTPS; its certificate is not checked.")
def probe(address: str, ready: bool, tls: bool) -> int:
    """Ask the admin port at ADDRESS whether the store is well.

    Exit code 1 when it is not, or does not answer; what it says is printed.
    """
    from logservice.config import Address

    target = Address.parse(address, "address")
    connection = _probing(target.host, target.port, tls)
    try:
        connection.request("GET", "/readyz" if ready else "/healthz")
        answer = connection.getresponse()
        say(answer.read().decode(errors="replace").rstrip())
    except (OSError, http.client.HTTPException) as error:
        say(f"no answer from {target}: {error}")
        return exit_codes.NEGATIVE
    finally:
        connection.close()
    return exit_codes.OK if answer.status == http.client.OK else exit_codes.NEGATIVE


def _probing(host: str, port: int, tls: bool) -> http.client.HTTPConnection:
    """The question is whether somebody is well, and a probe neither tells a secret nor is told one:
    so it looks at no certificate, as the probes of Kubernetes do.
    """
    if not tls:
        return http.client.HTTPConnection(host, port, timeout=_PROBE_TIMEOUT_S)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=_PROBE_TIMEOUT_S, context=context)

"""How the programs' command lines say where PostgreSQL is: in libpq's words, but for two.

Over the network the default is ``verify-full``, and there is no ``prefer``. A password comes from a
file, which others cannot read; a command line can be read by everybody on the machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from examples.postgres.address import Address
from examples.postgres.tls import Mode


def add_address(parser: argparse.ArgumentParser) -> None:
    """The options that `address` reads."""
    parser.add_argument("--host", required=True, help="or the directory of its unix socket")
    parser.add_argument("--port", type=int, default=5432)
    parser.add_argument("--user", default="postgres")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="its first line")
    parser.add_argument("--sslmode", type=Mode, choices=list(Mode), default=Mode.VERIFY_FULL)
    parser.add_argument("--sslrootcert", type=Path, metavar="FILE", help="PEM; else the system's")


def address(arguments: argparse.Namespace) -> Address:
    """Raises OSError, and ValueError for a file without a password."""
    password = ""
    if arguments.password_file is not None:
        password = arguments.password_file.read_text().partition("\n")[0]
        if not password:
            raise ValueError(f"{arguments.password_file} has no password in its first line")
    return Address(
        arguments.host,
        arguments.port,
        arguments.user,
        password,
        arguments.sslmode,
        arguments.sslrootcert,
    )

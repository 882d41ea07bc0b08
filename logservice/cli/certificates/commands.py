"""`logservice certs`: a certificate authority for a cluster that has none; see `authority`."""

from __future__ import annotations

import datetime
from pathlib import Path

import click
from logservice_wire.errors import InvalidArgument

from logservice.cli.certificates.authority import (
    AUTHORITY_DAYS,
    LEAF_DAYS,
    PLANES,
    Authority,
    Issued,
    read_certificate,
)
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, show_rows
from logservice.identity import IdentityKind

_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("certs"),
    show_default=True,
    envvar="LOGSERVICE_CERTS_DIR",
    help="Holds the authorities and every certificate. Keep it away from the stores' machines.",
)
_days = click.option(
    "--days", default=LEAF_DAYS, show_default=True, type=click.IntRange(1, 3650), help="Validity."
)


_HELP = """\
Issue and revoke certificates.

\b
logservice certs init --cluster prod
logservice certs issue store store-1 --host store-1.example --host 10.0.0.1
logservice certs issue client wal-writer
logservice certs rotate
"""


@click.group(help=_HELP)
def certs() -> None:
    """See `_HELP`."""


@certs.command()
@_directory
@click.option("--cluster", required=True, help="Cluster id, as in the stores' configuration.")
@click.option(
    "--trust-domain",
    default="logservice.internal",
    show_default=True,
    help="First part of every identity.",
)
@click.option(
    "--days",
    default=AUTHORITY_DAYS,
    show_default=True,
    type=click.IntRange(1, 36500),
    help="Validity of the authorities.",
)
def init(directory: Path, cluster: str, trust_domain: str, days: int) -> None:
    """Make two authorities: for clients, and for stores."""
    Authority.create(directory, cluster, trust_domain, days)
    say(f"authorities of cluster {cluster} are in {directory / 'ca'}; guard the .key files")


@certs.group()
def issue() -> None:
    """Issue a certificate with its key."""


@issue.command("store")
@_directory
@click.argument("name")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=("localhost", "127.0.0.1", "::1"),
    show_default=True,
    help="Name or address that clients dial; may be given several times.",
)
@_days
def issue_store(directory: Path, name: str, hosts: tuple[str, ...], days: int) -> None:
    """Issue the two of store NAME: for clients, and for other stores."""
    say(str(Authority.open(directory).issue_store(name, hosts, days)))


@issue.command("client")
@_directory
@click.argument("name")
@_days
def issue_client(directory: Path, name: str, days: int) -> None:
    """Issue the one of client NAME; print its folder and identity.

    The identity is what `logctl acl grant` takes.
    """
    authority = Authority.open(directory)
    say(str(authority.issue_client(name, days)))
    say(authority.client_uri(name))


@certs.command()
@_directory
@click.argument("names", nargs=-1)
@_days
@click.option(
    "--ca",
    type=click.Choice(PLANES),
    help="Step 1 of replacing an authority: a new one, trusted beside the old one. Then let"
    " everybody reload, rotate all certificates (step 2), and forget the old one (step 3).",
)
@click.option("--forget-old-ca", type=click.Choice(PLANES), help="Step 3.")
def rotate(
    directory: Path, names: tuple[str, ...], days: int, ca: str | None, forget_old_ca: str | None
) -> None:
    """Renew the certificates of NAMES, by default of all.

    They get new keys, and the revocation lists are signed again.
    """
    authority = Authority.open(directory)
    if ca and forget_old_ca:
        raise InvalidArgument("replacing an authority is done step by step", field="ca")
    if ca:
        authority.replace_authority(ca)
        say(f"a new authority signs for the {ca} plane; the old one is still trusted")
        return
    if forget_old_ca:
        authority.forget_old(forget_old_ca)
        say(f"the old authority of the {forget_old_ca} plane is not trusted any more")
        return
    chosen = [one for one in authority.issued() if not names or one.path.parent.name in names]
    missing = set(names) - {one.path.parent.name for one in chosen}
    if missing:
        raise InvalidArgument(f"no certificate of {min(missing)!r}", field="names")
    for one in chosen:
        authority.renew(one, days)
        say(str(one.path))
    authority.renew_lists()


@certs.command()
@_directory
@click.argument("kind", type=click.Choice(["store", "client"]))
@click.argument("name")
def revoke(directory: Path, kind: str, name: str) -> None:
    """Revoke every certificate of a store or client NAME.

    Copy DIR/ca/*-crl.pem to the files that `tls.client_crl` and `tls.peer_crl` of every store name.
    A new certificate of the same NAME (`issue`, `rotate`) counts again.
    """
    count = Authority.open(directory).revoke(IdentityKind(kind), name)
    say(f"{count} certificates of {kind} {name} are revoked; copy {directory / 'ca'}/*-crl.pem")


@certs.command()
@_directory
def lists(directory: Path) -> None:
    """Sign the revocation lists again, before they are overdue."""
    Authority.open(directory).renew_lists()
    say(f"revocation lists are in {directory / 'ca'}")


@certs.command()
@_directory
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--within-days", default=0, help="Also complain about those that end so soon.")
@output_option
def show(directory: Path, files: tuple[Path, ...], within_days: int, form: str) -> int:
    """Show what certificates say: FILES, or all of the folder.

    Exit code 1 when one is not valid.
    """
    found = (
        [Issued(path, read_certificate(path)) for path in files]
        if files
        else list(Authority.open(directory).issued())
    )
    now = datetime.datetime.now(datetime.UTC)
    rows = []
    for one in found:
        left = one.certificate.not_valid_after_utc - now
        rows.append(
            {
                "file": str(one.path),
                "identity": one.uris,
                "hosts": one.hosts,
                "not_after": f"{one.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
                "days_left": left.days,
                "valid": now >= one.certificate.not_valid_before_utc
                and left > datetime.timedelta(days=within_days),
            }
        )
    main = ("file", "identity", "not_after", "days_left", "valid")
    show_rows(form, rows, "certificates", main=main)
    return exit_codes.OK if all(row["valid"] for row in rows) else exit_codes.NEGATIVE

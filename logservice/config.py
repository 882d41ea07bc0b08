"""Config: what a store's TOML file may say, and nothing else.

Theory of operation. `load` reads the file with tomllib and converts it into frozen structs that
forbid unknown keys, so that a misspelt limit is refused instead of silently ignored. Every refusal
is one `ConfigError` that names the path of the key, what was expected and what was found, e.g.
``raft.election_ticks: expected int >= 2, got 1``. Rules that span several keys (an election must
outlast several heartbeats, plaintext is asked for in words and stays on loopback) are checked here
too, because a store that starts with a configuration that cannot work fails later and far from the
mistake.

This file alone decides the names, units, defaults and ranges of the settings. It opens no sockets
and creates no files. `deploy/store.example.toml` documents the same keys; a test keeps the two
together. Single keys may be set beside the file (``--set``), so that stores that are containers of
one template can share one file; such keys pass the same checks.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlsplit

import msgspec
from logservice_wire.errors import InvalidArgument
from logservice_wire.regular_file import read_regular
from msgspec import Meta

from logservice import bounds, memory_budget
from logservice.identity import TRUST_DOMAIN, IdentityKind, parse_uri
from logservice.log_levels import LogLevelName

Name = Annotated[
    str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=bounds.NAME_BYTES_MAX)
]
"""Names of stores, clusters and hosts: they end up in file names, addresses and tables."""

CipherSuite = Literal[
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
]
"""The suites of TLS 1.2 that keep past traffic secret when a key is lost, by OpenSSL's names."""

_MIB: Final = 1024 * 1024
_MONTH_S: Final = 31 * 86_400.0

KindT = TypeVar("KindT")

_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class ConfigError(InvalidArgument):
    """The configuration is wrong; metadata: field (the path of the key)."""

    def __init__(self, field: str, problem: str) -> None:
        """`field` is ``section.key``; `problem` says what was expected and what was found."""
        super().__init__(f"{field}: {problem}" if field else problem, field=field)


class Address(NamedTuple):
    """``host:port``; IPv6 hosts are in brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, field: str) -> Address:
        """Raises ConfigError, which names `field`, for anything but ``host:port``."""
        host, separator, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ConfigError(field, f"expected IPv6 host in brackets, got {text!r}")
        if not separator or not host or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(field, f"expected 'host:port', got {text!r}")
        return cls(host, int(port))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost counts as reachable
        from elsewhere.
        """
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        """The form that `parse` reads."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections, which are immutable and refuse unknown keys."""


class StoreSection(_Section, frozen=True, kw_only=True):
    """[store]: who this process is. Each data directory is bound to it when it is created.

    `data_directories` names one for each disk; replicas are spread over them. More may be added
    later.
    """

    store_id: Name
    cluster_id: Name
    data_directories: Annotated[
        list[Annotated[str, Meta(min_length=1)]],
        Meta(min_length=1, max_length=bounds.DATA_DIRECTORIES_MAX),
    ]
    host: Name | None = None
    """Machine label: replicas of a shard never share a machine. The default is the store id."""
    labels: Annotated[dict[Name, Name], Meta(max_length=bounds.STORE_LABELS_MAX)] = {}
    """Where the store is, and what else it is known by. HAKeeper places replicas by `zone`, and by
    `region` where zones of several regions have the same name; other labels are free."""

    @property
    def host_label(self) -> str:
        """`host`, or else the store id, so that the store counts as its own machine."""
        return self.host or self.store_id


class ListenSection(_Section, frozen=True, kw_only=True):
    """[listen]: where the store is reached. Port 0 asks the system for a port."""

    client: str = "127.0.0.1:0"
    peer: str = "127.0.0.1:0"
    advertise_client: str | None = None
    """What others are told to dial, when that is another address (containers, NAT)."""
    advertise_peer: str | None = None
    insecure_plaintext: bool = False
    """Whether the store serves without TLS, on loopback addresses only. It is never a default:
    without [tls] it has to be set."""


class HAKeeperMember(_Section, frozen=True, kw_only=True):
    """One of the stores that form shard 0 at the cluster's first start."""

    store_id: Name
    peer_address: str


class BootstrapSection(_Section, frozen=True, kw_only=True):
    """[bootstrap]: the same on every store. It matters at the cluster's first start only.

    Later stores remember where HAKeeper is; the addresses remain a way to find it.
    """

    hakeeper_members: Annotated[list[HAKeeperMember], Meta(min_length=1, max_length=9)]
    log_shards: Annotated[int, Meta(ge=0, le=4096)] = 1
    replicas: Annotated[int, Meta(ge=1, le=9)] = 3


class RaftSection(_Section, frozen=True, kw_only=True):
    """[raft]: time. Round trips on loopback and in a LAN are far below a tick; a WAN needs a longer
    tick.

    After `quiesce_ticks` without a request a shard quiesces and costs nothing (0: never); after a
    tenth of them, and two election timeouts, while its leader was given nothing to append. With
    `lease_read` a leader answers linearizable reads alone while a lease holds. It must be the same
    on every store, and may be set only where no clock runs 10 % faster than another.
    """

    tick_ms: Annotated[int, Meta(ge=1, le=10_000)] = 50
    heartbeat_ticks: Annotated[int, Meta(ge=0, le=1000)] = 0
    election_ticks: Annotated[int, Meta(ge=2, le=10_000)] = 20
    quiesce_ticks: Annotated[int, Meta(ge=0, le=1_000_000)] = 200
    lease_read: bool = False

    @property
    def heartbeat_every_ticks(self) -> int:
        """`heartbeat_ticks`, or else a quarter of an election timeout: three may be lost, and no
        leader is found out sooner for more of them.
        """
        return self.heartbeat_ticks or max(1, self.election_ticks // 4)


class HAKeeperSection(_Section, frozen=True, kw_only=True):
    """[hakeeper]: repair. The replicas of a store that is silent for its timeout are replaced."""

    store_timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 300.0
    tick_ms: Annotated[int, Meta(ge=10, le=10_000)] = 100
    heartbeat_interval_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    joining: Literal["automatic", "by-verb"] = "automatic"
    """Whether a store with a certificate of the peer CA joins by its first heartbeat, or only when
    it was admitted. It matters at the very first start only; later `logctl joining` decides."""


class StorageSection(_Section, frozen=True, kw_only=True):
    """[storage]: files of the data directory."""

    segment_bytes: Annotated[int, Meta(ge=_MIB, le=4096 * _MIB)] = 64 * _MIB
    ballast_bytes: Annotated[int, Meta(ge=0)] = 64 * _MIB
    """Given back when the disk is full, so that truncation and start-up still work."""
    reserve_bytes: Annotated[int, Meta(ge=0)] = bounds.LOGDB_RESERVE_BYTES
    """Free bytes below which the disk counts as full. A shard refuses blocks while the disks of
    most of its replicas are full."""
    cached_bytes: Annotated[int, Meta(ge=0)] = bounds.LOGDB_CACHED_BYTES
    """Of the newest bytes of each data directory, so many stay in the system's page cache. What is
    older is read from the disk."""
    scrub_interval_s: Annotated[float, Meta(gt=0, le=_MONTH_S)] = bounds.SCRUB_PASS_INTERVAL_S
    """Pause between passes over all sealed segments."""
    scrub_bytes_per_s: Annotated[
        int, Meta(ge=bounds.SCRUB_BYTES_PER_S_MIN, le=bounds.SCRUB_BYTES_PER_S_MAX)
    ] = bounds.SCRUB_BYTES_PER_S
    """What the scrub and the comparison together read at most, in each data directory. There is no
    "off": damage would be found when the last good copy is gone."""
    compare_interval_s: Annotated[float, Meta(gt=0, le=_MONTH_S)] = bounds.SCRUB_PASS_INTERVAL_S
    """Pause between passes that compare the shards led here with their other replicas."""
    keys_file: str = ""
    """Keys that entries are encrypted with, relative to this file; see `sealing_keys`. With ""
    and no command they are not, and a store that has encrypted ones does not start."""
    keys_command: list[str] = []
    """A command that prints them."""
    keys_interval_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    """Pause between two looks for other keys."""


class TruncationSection(_Section, frozen=True, kw_only=True):
    """[truncation]: how often the worker visits every replica and what it keeps."""

    interval_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    exports_max: Annotated[int, Meta(ge=2, le=1000)] = bounds.EXPORTED_SNAPSHOTS_MAX


class AdminSection(_Section, frozen=True, kw_only=True):
    """[admin]: the HTTP port for operators: probes, metrics, a page. Read-only."""

    listen: str = "127.0.0.1:0"
    advertise: str | None = None
    """Where operators and Prometheus reach the port, when that is another address."""
    allow_remote: bool = False
    """Whether `listen` may be an address that other machines can reach. Without `authentication`
    the port then tells everybody there what it knows."""
    tls: bool = False
    """Whether the port speaks HTTPS."""
    certificate: str = ""
    """PEM: what it shows, and the chain behind it; "": what the store shows to clients. The next
    key is its key."""
    key: str = ""
    authentication: Literal["none", "required"] = "none"
    """Whether everything but /healthz and /readyz needs a client's certificate or a bearer token of
    an identity that has some role."""


class LoggingSection(_Section, frozen=True, kw_only=True):
    """[logging]: the log on stderr, one line per event that matters, none per append."""

    format: Literal["console", "json"] = "console"
    level: LogLevelName = "info"


class LimitsSection(_Section, frozen=True, kw_only=True):
    """[limits]: soft bounds that may differ between stores."""

    concurrent_rpcs_max: Annotated[int, Meta(ge=1)] = bounds.CONCURRENT_RPCS_MAX
    rpc_timeout_default_s: Annotated[float, Meta(gt=0)] = bounds.RPC_TIMEOUT_DEFAULT_S
    rpc_timeout_max_s: Annotated[float, Meta(gt=0)] = bounds.RPC_TIMEOUT_MAX_S
    read_bytes_default: Annotated[int, Meta(ge=1)] = bounds.READ_BYTES_DEFAULT
    read_bytes_max: Annotated[int, Meta(ge=1, le=bounds.READ_BYTES_MAX)] = bounds.READ_BYTES_MAX
    identity_rpcs_max: Annotated[int, Meta(ge=1)] = bounds.IDENTITY_RPCS_MAX
    """The keys `identity_*` bound each identity: unary calls and streams under way; requests and
    bytes (both ways) per second, 0 for no limit."""
    identity_streams_max: Annotated[int, Meta(ge=1)] = bounds.IDENTITY_STREAMS_MAX
    answer_bytes_max: Annotated[int, Meta(ge=1)] = bounds.ANSWER_BYTES_MAX
    """Bytes of answers that wait to be taken, of all identities; the next key bounds each."""
    identity_answer_bytes_max: Annotated[int, Meta(ge=1)] = bounds.IDENTITY_ANSWER_BYTES_MAX
    undelivered_bytes_max: Annotated[int, Meta(ge=1)] = bounds.UNDELIVERED_BYTES_MAX
    """Bytes of requests that wait to become whole, of all identities; the next key bounds each."""
    identity_undelivered_bytes_max: Annotated[int, Meta(ge=1)] = (
        bounds.IDENTITY_UNDELIVERED_BYTES_MAX
    )
    memory_bytes_max: Annotated[int, Meta(ge=0)] = 0
    """The memory budget: a store whose parts (`memory_budget`) add up to more does not start. 0:
    what they add up to."""
    proposal_bytes_max: Annotated[int, Meta(ge=64 * _MIB)] = bounds.STORE_PROPOSAL_BYTES_MAX
    """Bytes of appends and commands of all logs that wait for their outcome. The next keys: of
    entries that are not on a disk yet; of messages to other stores; of their requests."""
    unwritten_bytes_max: Annotated[int, Meta(ge=64 * _MIB)] = bounds.UNWRITTEN_BYTES_MAX
    peer_queue_bytes_max: Annotated[int, Meta(ge=64 * _MIB)] = bounds.PEER_QUEUES_BYTES_MAX
    peer_request_bytes_max: Annotated[int, Meta(ge=64 * _MIB)] = bounds.PEER_REQUESTS_BYTES_MAX
    connections_max: Annotated[int, Meta(ge=1)] = bounds.CLIENT_CONNECTIONS_MAX
    """Connections to the client port; the next keys bound those of each identity and from each
    address. There are fewer where the system gives fewer descriptors."""
    identity_connections_max: Annotated[int, Meta(ge=1)] = bounds.IDENTITY_CONNECTIONS_MAX
    address_connections_max: Annotated[int, Meta(ge=1)] = bounds.ADDRESS_CONNECTIONS_MAX
    identity_requests_per_s: Annotated[float, Meta(ge=0)] = 0.0
    identity_bytes_per_s: Annotated[float, Meta(ge=0)] = 0.0
    catch_up_bytes_per_s: Annotated[
        int, Meta(ge=bounds.CATCH_UP_BYTES_PER_S_MIN, le=bounds.CATCH_UP_BYTES_PER_S_MAX)
    ] = bounds.CATCH_UP_BYTES_PER_S
    """What the store sends at most to replicas that are far behind, of all logs that it leads;
    `logctl cluster set --catch-up` sets another rate for all stores."""
    tail_read_bytes_per_s: Annotated[
        int, Meta(ge=bounds.CATCH_UP_BYTES_PER_S_MIN, le=bounds.CATCH_UP_BYTES_PER_S_MAX)
    ] = bounds.CATCH_UP_BYTES_PER_S_MAX
    """What the store reads at most for clients whose entries are in memory; the next key: for those
    whose entries are on the disk. `logctl cluster set` sets others for all stores."""
    catch_up_read_bytes_per_s: Annotated[
        int, Meta(ge=bounds.CATCH_UP_BYTES_PER_S_MIN, le=bounds.CATCH_UP_BYTES_PER_S_MAX)
    ] = bounds.CATCH_UP_BYTES_PER_S_MAX
    stream_blocks_inflight_max: Annotated[int, Meta(ge=1, le=bounds.SESSION_WINDOW)] = (
        bounds.SESSION_WINDOW
    )


class TlsSection(_Section, frozen=True, kw_only=True):
    """[tls]: mutual TLS on both planes, when the six files are named: either all of them or none.

    Paths are relative to the configuration file. Both planes may use the same files and the same
    CA; with two CAs a certificate of one plane does not even pass the other one's handshake.
    """

    trust_domain: Annotated[str, Meta(pattern=rf"\A{TRUST_DOMAIN}\Z")] = "logservice.internal"
    client_ca: str = ""
    """PEM: the CA that signs the clients' certificates; several while a CA is being replaced."""
    certificate: str = ""
    """PEM: this store's certificate for clients, and the chain behind it."""
    key: str = ""
    peer_ca: str = ""
    """PEM: the CA that signs the stores' certificates. The next two keys are this store's
    certificate and key for the plane between stores."""
    peer_certificate: str = ""
    peer_key: str = ""
    client_crl: str = ""
    """PEM: revocation lists of the authorities in `client_ca`. With "" nothing is ever revoked.
    `peer_crl` holds those of `peer_ca`."""
    peer_crl: str = ""
    revocation_strict: bool = False
    """Whether everybody of an authority is refused whose list is overdue or missing. By default an
    overdue list goes on refusing whom it names, is an alarm, and lets the others in."""
    ciphers: Annotated[tuple[CipherSuite, ...], Meta(max_length=6)] = ()
    """Suites of TLS 1.2 that the store takes on all ports, in its order of preference; empty: the
    libraries' choice. Those of TLS 1.3 are always taken."""
    reload_interval_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    connection_age_max_s: Annotated[float, Meta(ge=1, le=86_400)] = bounds.CONNECTION_AGE_MAX_S
    """A removed CA or an expired certificate is out of use at the latest after this long."""

    @property
    def enabled(self) -> bool:
        """Whether TLS is on; `check` has made sure that all its files are then named."""
        return bool(self.certificate)


class TokensSection(_Section, frozen=True, kw_only=True):
    """[tokens]: bearer tokens (JWT) beside certificates, for clients; on when `jwks` is named.

    They are taken on a port of their own, beside the clients' one (`port_offset`), and on the admin
    port. The section should be the same on every store.
    """

    issuer: str = ""
    """`iss` and one of `aud` must be these, byte by byte."""
    audience: str = ""
    jwks: str = ""
    """The issuer's public keys: a file, or an https URL. With "" there are no tokens."""
    jwks_ca: str = ""
    """PEM: who signs the certificate of the URL's host; "": the system's authorities."""
    jwks_token_file: str = ""
    """A token to show at the URL, read anew each time: Kubernetes wants one."""
    refresh_interval_s: Annotated[float, Meta(ge=1, le=86_400)] = 300.0
    keys_age_max_s: Annotated[float, Meta(ge=1, le=_MONTH_S)] = 86_400.0
    """Keys that could not be read again for so long are not used any more."""
    claim: Annotated[str, Meta(min_length=1, max_length=128)] = "sub"
    """The claim that names the client."""
    name_prefix: Annotated[
        str, Meta(pattern=r"\A([A-Za-z0-9][A-Za-z0-9._-]*)?\Z", max_length=64)
    ] = "token."
    """What the names of tokens' clients begin with, and those of no certificate. With "" the issuer
    can name every client that a certificate can name, administrators included."""
    algorithms: Annotated[
        tuple[Literal["RS256", "ES256", "EdDSA"], ...], Meta(min_length=1, max_length=3)
    ] = ("RS256", "ES256", "EdDSA")
    leeway_s: Annotated[float, Meta(ge=0, le=300)] = 30.0
    """By how much the issuer's clock may differ from this one."""
    lifetime_max_s: Annotated[float, Meta(gt=0, le=_MONTH_S)] = 86_400.0
    """Tokens that are good for longer are refused: a token cannot be taken back."""
    port_offset: Annotated[int, Meta(ge=-60_000, le=60_000)] = 20
    """The port for clients without certificates is so much above `listen.client`, and so is the one
    that clients are told of every other store: it must be the same on all of them."""

    @property
    def enabled(self) -> bool:
        """Whether tokens are taken; `check` has made sure that the rest is there."""
        return bool(self.jwks)


class SecuritySection(_Section, frozen=True, kw_only=True):
    """[security]: who may do everything, whatever the access list says.

    It is the way in at a cluster's first start, and the way back in after a mistake.
    """

    admins: Annotated[list[str], Meta(max_length=bounds.BOOTSTRAP_ADMINS_MAX)] = []


class AuditSection(_Section, frozen=True, kw_only=True):
    """[audit]: the log of administration and denials, which is written whenever there is TLS."""

    directory: str = ""
    """Relative to the configuration file; "" means ``audit`` in the data directory."""
    data: bool = False
    """Whether calls on data are logged, too: one line per unary call, one per stream with the LSNs
    it covered."""
    file_bytes_max: Annotated[int, Meta(ge=4096)] = bounds.AUDIT_FILE_BYTES_MAX
    """This size and the number of files are those of each of the two trails, administration and
    calls."""
    files_max: Annotated[int, Meta(ge=2, le=100_000)] = bounds.AUDIT_FILES_MAX
    identity_bytes_per_s: Annotated[int, Meta(ge=1024)] = bounds.AUDIT_IDENTITY_BYTES_PER_S
    """What one identity may add to the trail of calls; further calls are only counted."""


class ArchiveSection(_Section, frozen=True, kw_only=True):
    """[archive]: the cluster's archiver, run by whichever store leads HAKeeper."""

    config: str = ""
    """Its configuration, relative to this file (deploy/archive.example.toml). With "" this store
    runs none. Every store that may lead HAKeeper should have it.
    """


class TracingSection(_Section, frozen=True, kw_only=True):
    """[tracing]: spans, where OpenTelemetry is installed (``logservice[otel]``)."""

    exporter: str = ""
    """The name that OpenTelemetry's packages register: ``otlp_proto_http``, ``console``. With ""
    there are no spans. OTEL_* variables of the environment say the rest.
    """


class StoreConfig(_Section, frozen=True, kw_only=True):
    """The whole file."""

    store: StoreSection
    listen: ListenSection = ListenSection()
    bootstrap: BootstrapSection
    raft: RaftSection = RaftSection()
    hakeeper: HAKeeperSection = HAKeeperSection()
    storage: StorageSection = StorageSection()
    truncation: TruncationSection = TruncationSection()
    admin: AdminSection = AdminSection()
    logging: LoggingSection = LoggingSection()
    limits: LimitsSection = LimitsSection()
    tls: TlsSection = TlsSection()
    tokens: TokensSection = TokensSection()
    security: SecuritySection = SecuritySection()
    audit: AuditSection = AuditSection()
    archive: ArchiveSection = ArchiveSection()
    tracing: TracingSection = TracingSection()


_TLS_LISTS: Final = ("client_crl", "peer_crl")
_TOKEN_FILES: Final = ("jwks", "jwks_ca", "jwks_token_file")
_TLS_FILES: Final = (
    "client_ca",
    "certificate",
    "key",
    "peer_ca",
    "peer_certificate",
    "peer_key",
)


def load(path: Path, assignments: Sequence[str] = ()) -> StoreConfig:
    """Read and check a configuration file; relative paths in it are relative to the file.

    `assignments` are ``section.key=value`` and win over the file. Raises ConfigError.
    """
    try:
        text = read_regular(path, bounds.CONFIG_FILE_BYTES_MAX).decode("utf-8")
    except OSError as error:
        why = f"cannot read configuration {path}: {error.strerror}"
        raise ConfigError("", why) from error
    except UnicodeDecodeError as error:
        raise ConfigError("", f"cannot read configuration {path}: {error}") from error
    config = parse(text, assignments)
    directories = [str(path.parent / directory) for directory in config.store.data_directories]
    files = {name: getattr(config.tls, name) for name in (*_TLS_FILES, *_TLS_LISTS)}
    files = {name: str(path.parent / text) if text else "" for name, text in files.items()}
    return msgspec.structs.replace(
        config,
        store=msgspec.structs.replace(config.store, data_directories=directories),
        tls=msgspec.structs.replace(config.tls, **files),
        tokens=_tokens_beside(path.parent, config.tokens),
        admin=msgspec.structs.replace(
            config.admin,
            certificate=_beside(path.parent, config.admin.certificate),
            key=_beside(path.parent, config.admin.key),
        ),
        audit=msgspec.structs.replace(
            config.audit,
            directory=str(path.parent / config.audit.directory) if config.audit.directory else "",
        ),
        storage=msgspec.structs.replace(
            config.storage,
            keys_file=str(path.parent / config.storage.keys_file)
            if config.storage.keys_file
            else "",
        ),
        archive=msgspec.structs.replace(
            config.archive,
            config=str(path.parent / config.archive.config) if config.archive.config else "",
        ),
    )


def _tokens_beside(folder: Path, tokens: TokensSection) -> TokensSection:
    files = {name: getattr(tokens, name) for name in _TOKEN_FILES}
    return msgspec.structs.replace(
        tokens,
        **{
            name: file if file.startswith("https://") else _beside(folder, file)
            for name, file in files.items()
        },
    )


def _beside(folder: Path, name: str) -> str:
    return str(folder / name) if name else ""


def check_files(config: StoreConfig) -> None:
    """Checks that each file of [tls], [tokens], [archive] and [storage] can be read, and is no
    longer than any of them may be; its content is looked at when it is used.

    It is no part of `load`, because a configuration is also checked on machines that do not have
    its certificates. Raises ConfigError.
    """
    files = {f"tls.{name}": getattr(config.tls, name) for name in (*_TLS_FILES, *_TLS_LISTS)}
    files |= {
        f"tokens.{name}": file
        for name in _TOKEN_FILES
        if not (file := getattr(config.tokens, name)).startswith("https://")
    }
    files |= {
        "admin.certificate": config.admin.certificate,
        "admin.key": config.admin.key,
        "archive.config": config.archive.config,
        "storage.keys_file": config.storage.keys_file,
    }
    for key, file in files.items():
        try:
            if file:
                read_regular(file, bounds.PEM_FILE_BYTES_MAX)
        except OSError as error:
            raise ConfigError(key, f"cannot read {file}: {error.strerror}") from error


def parse(text: str, assignments: Sequence[str] = ()) -> StoreConfig:
    """Check a configuration given as TOML text, with `assignments` as in `load`. Raises
    ConfigError.
    """
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError("", f"not TOML: {error}") from error
    for assignment in assignments:
        _assign(raw, assignment)
    config = converted(raw, StoreConfig)
    check(config)
    return config


def converted(raw: Mapping[str, object], kind: type[KindT], at: str = "") -> KindT:
    """What was read of a file as a `kind`, whose structs forbid unknown keys. `at`: the path of
    `raw` in the file. Raises ConfigError.
    """
    try:
        return msgspec.convert(raw, type=kind)
    except msgspec.ValidationError as error:
        _refuse(str(error), raw, at)


def _assign(raw: dict[str, Any], assignment: str) -> None:
    """The value is TOML if it reads as TOML, else text: ``raft.tick_ms=20``, ``store.host=rack-7``.

    No key takes both kinds, so nothing is guessed; a value of the wrong type is refused later.
    """
    match = re.fullmatch(r"([a-z_]+)\.([a-z_]+)=(.*)", assignment, re.DOTALL)
    if match is None:
        raise ConfigError("", f"expected section.key=value, got {assignment!r}")
    section, key, text = match.groups()
    try:
        value = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        value = {"value": text}
    if value.keys() != {"value"}:  # several lines: more keys than the one
        raise ConfigError(f"{section}.{key}", f"expected one value, got {text!r}")
    keys = raw.setdefault(section, {})
    if not isinstance(keys, dict):
        raise ConfigError(section, f"expected a section, got {keys!r}")
    keys[key] = value["value"]


def check(config: StoreConfig) -> None:
    """Checks the rules that span several keys. Raises ConfigError."""
    _check_directories(config)
    _check_labels(config.store.labels)
    _check_tls(config)
    _check_tokens(config)
    _check_addresses(config)
    _check_admin(config)
    _check_one_port_each(config)
    _check_times(config)
    _check_bootstrap(config)
    _check_memory(config)
    if config.storage.keys_file and config.storage.keys_command:
        raise ConfigError("storage.keys_file", "keys come from a file or a command, not from both")
    if config.limits.rpc_timeout_default_s > config.limits.rpc_timeout_max_s:
        raise ConfigError("limits.rpc_timeout_default_s", "expected <= limits.rpc_timeout_max_s")
    if config.limits.read_bytes_default > config.limits.read_bytes_max:
        raise ConfigError("limits.read_bytes_default", "expected <= limits.read_bytes_max")


def memory_limits(config: StoreConfig, directories: int | None = None) -> dict[str, int]:
    """Bytes of each part of the store's memory budget, which is their sum. `directories`: how many
    data directories it uses now; None: as many as the configuration names.
    """
    count = len(config.store.data_directories) if directories is None else directories
    return memory_budget.limits_of(_memory_keys(config), count)


def _memory_keys(config: StoreConfig) -> dict[str, int]:
    return {part.key: getattr(config.limits, part.key) for part in memory_budget.PARTS if part.key}


def _check_memory(config: StoreConfig) -> None:
    """INV-MEM-2"""
    budget, directories = config.limits.memory_bytes_max, len(config.store.data_directories)
    if budget and (problem := memory_budget.excess(budget, _memory_keys(config), directories)):
        raise ConfigError("limits.memory_bytes_max", problem)


def _check_tls(config: StoreConfig) -> None:
    given = [name for name in _TLS_FILES if getattr(config.tls, name)]
    missing = [name for name in _TLS_FILES if name not in given]
    if given and missing:
        raise ConfigError(f"tls.{missing[0]}", "required when another file of [tls] is named")
    if given and config.listen.insecure_plaintext:
        raise ConfigError("listen.insecure_plaintext", "expected false: [tls] is configured")
    if not given and not config.listen.insecure_plaintext:
        raise ConfigError(
            "tls",
            "no certificates are named; `logservice certs` makes them. Without TLS a store serves"
            " loopback addresses only, and only with listen.insecure_plaintext = true",
        )
    for position, uri in enumerate(config.security.admins):
        admin = parse_uri(uri)
        if admin is None or admin.kind is not IdentityKind.CLIENT:
            raise ConfigError(
                f"security.admins[{position}]",
                f"expected spiffe://<trust domain>/cluster/<cluster id>/client/<name>, got {uri!r}",
            )


def _check_tokens(config: StoreConfig) -> None:
    tokens = config.tokens
    if not tokens.enabled:
        for name in ("issuer", "audience", "jwks_ca", "jwks_token_file"):
            if getattr(tokens, name):
                raise ConfigError("tokens.jwks", f"required when tokens.{name} is given")
        return
    for name in ("issuer", "audience"):
        if not getattr(tokens, name):
            raise ConfigError(f"tokens.{name}", "required when tokens.jwks is given")
    if not config.tls.enabled:
        raise ConfigError("tokens.jwks", "tokens are taken over TLS only; configure [tls]")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", tokens.jwks):
        url = urlsplit(tokens.jwks)
        if url.scheme != "https" or not url.hostname or url.username or url.password:
            raise ConfigError(
                "tokens.jwks", f"expected a file or https://<host>/..., got {tokens.jwks!r}"
            )
    if tokens.keys_age_max_s < 2 * tokens.refresh_interval_s:
        # One look that fails must not end the use of tokens.
        raise ConfigError(
            "tokens.keys_age_max_s",
            f"expected >= 2 x tokens.refresh_interval_s, got {tokens.keys_age_max_s:g}",
        )
    port = Address.parse(config.listen.client, "listen.client").port
    if port == 0 or tokens.port_offset == 0 or not 0 < port + tokens.port_offset <= 65535:
        raise ConfigError(
            "tokens.port_offset",
            f"expected another port beside listen.client ({port}), which must not be 0",
        )


def doubts(config: StoreConfig) -> list[str]:
    """Settings that are allowed and more likely a mistake: they are right later in a cluster's life
    or elsewhere.
    """
    first = config.bootstrap
    members = len(first.hakeeper_members)
    if first.log_shards and first.replicas > members:
        return [
            f"bootstrap.replicas: {first.replicas} replicas need as many stores, and"
            f" hakeeper_members names {members}: a first start waits until others have joined"
        ]
    return []


def _check_directories(config: StoreConfig) -> None:
    seen: set[str] = set()
    for position, directory in enumerate(config.store.data_directories):
        path = posixpath.normpath(directory)
        if path in seen:
            raise ConfigError(
                f"store.data_directories[{position}]", f"{directory!r} is there already"
            )
        seen.add(path)


def _check_labels(labels: Mapping[str, str]) -> None:
    if "host" in labels:
        raise ConfigError("store.labels", "expected no label 'host': store.host is that label")
    size = sum(len(name) + len(value) for name, value in labels.items())
    if size > bounds.STORE_LABEL_BYTES_MAX:
        expected = f"expected <= {bounds.STORE_LABEL_BYTES_MAX} bytes in all, got {size}"
        raise ConfigError("store.labels", expected)


def _check_addresses(config: StoreConfig) -> None:
    listen = config.listen
    for name, text in (("client", listen.client), ("peer", listen.peer)):
        address = Address.parse(text, f"listen.{name}")
        if not address.loopback and not config.tls.enabled:
            raise ConfigError(
                f"listen.{name}",
                f"plaintext on {text!r} can be reached from other machines; use a loopback address"
                " or configure [tls]",
            )
        if address.host in _WILDCARDS and getattr(listen, f"advertise_{name}") is None:
            raise ConfigError(
                f"listen.advertise_{name}",
                f"required when listening on every address ({text!r}): nobody can dial that",
            )
    for name, advertised in (
        ("advertise_client", listen.advertise_client),
        ("advertise_peer", listen.advertise_peer),
    ):
        if advertised is not None and Address.parse(advertised, f"listen.{name}").port == 0:
            raise ConfigError(
                f"listen.{name}", f"expected a port others can dial, got {advertised!r}"
            )


def _check_admin(config: StoreConfig) -> None:
    admin = config.admin
    address = Address.parse(admin.listen, "admin.listen")
    if not address.loopback and not admin.allow_remote:
        raise ConfigError(
            "admin.listen",
            f"{admin.listen!r} can be reached from other machines; use a loopback address or say"
            " allow_remote = true, which tells everybody there what the port knows unless"
            ' authentication = "required"',
        )
    if admin.tls and not config.tls.enabled:
        raise ConfigError("admin.tls", "expected false: [tls] is not configured")
    if bool(admin.certificate) is not bool(admin.key):
        raise ConfigError("admin.certificate", "a certificate and its key go together")
    if admin.certificate and not admin.tls:
        raise ConfigError("admin.tls", "expected true: a certificate is named")
    if admin.authentication == "required" and not admin.tls:
        raise ConfigError(
            "admin.authentication", "callers show what they are over TLS only: say admin.tls = true"
        )
    if admin.advertise is not None and Address.parse(admin.advertise, "admin.advertise").port == 0:
        raise ConfigError(
            "admin.advertise", f"expected a port others can dial, got {admin.advertise!r}"
        )


def _check_one_port_each(config: StoreConfig) -> None:
    listen = config.listen
    seen: list[tuple[str, Address]] = []
    named = [
        ("listen.client", listen.client),
        ("listen.peer", listen.peer),
        ("admin.listen", config.admin.listen),
    ]
    if config.tokens.enabled:
        named.append(("tokens.port_offset", tokens_address(config, listen.client)))
    for field, text in named:
        address = Address.parse(text, field)
        for other, taken in seen:
            same_host = address.host == taken.host or {address.host, taken.host} & {*_WILDCARDS}
            if address.port and address.port == taken.port and same_host:
                raise ConfigError(field, f"{text!r} is also {other}")
        seen.append((field, address))


def tokens_address(config: StoreConfig, client_address: str) -> str:
    """Where clients with tokens reach the store whose other clients reach it at
    `client_address`.
    """
    address = Address.parse(client_address, "listen.client")
    return str(Address(address.host, address.port + config.tokens.port_offset))


def _check_times(config: StoreConfig) -> None:
    raft = config.raft
    least = 3 * raft.heartbeat_every_ticks
    if raft.election_ticks < least:
        # One lost heartbeat must not start an election.
        raise ConfigError(
            "raft.election_ticks",
            f"expected >= 3 x raft.heartbeat_ticks ({least}), got {raft.election_ticks}",
        )
    if config.hakeeper.store_timeout_s < 3 * config.hakeeper.heartbeat_interval_s:
        # One late heartbeat must not start a repair.
        raise ConfigError(
            "hakeeper.store_timeout_s",
            "expected >= 3 x hakeeper.heartbeat_interval_s,"
            f" got {config.hakeeper.store_timeout_s:g}",
        )


def _check_bootstrap(config: StoreConfig) -> None:
    seen: dict[str, str] = {}
    for position, member in enumerate(config.bootstrap.hakeeper_members):
        path = f"bootstrap.hakeeper_members[{position}]"
        if Address.parse(member.peer_address, f"{path}.peer_address").port == 0:
            raise ConfigError(f"{path}.peer_address", "expected a port others can dial, got 0")
        for key, value in (("store_id", member.store_id), ("peer_address", member.peer_address)):
            if value in seen:
                raise ConfigError(f"{path}.{key}", f"{value!r} is also {seen[value]}")
            seen[value] = f"{path}.{key}"


_PATH: Final = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_FIELD: Final = re.compile(r"^Object (?:contains unknown|missing required) field `(?P<key>[^`]+)`$")


def _refuse(message: str, raw: Mapping[str, object], at: str) -> NoReturn:
    """Turn msgspec's message into ours, with the path first and the value that was found."""
    match = _PATH.match(message)
    assert match is not None  # the pattern matches every string
    problem, path = match["problem"], match["path"] or ""
    whole = ".".join(part for part in (at, path) if part)
    field = _FIELD.match(problem)
    if field is not None:
        where = ".".join(part for part in (whole, field["key"]) if part)
        known = "unknown" in problem
        raise ConfigError(where, "unknown key" if known else "required key is missing")
    expected = problem.split(", got ")[0].replace("`", "")
    raise ConfigError(whole, f"{expected[0].lower()}{expected[1:]}, got {_value_at(raw, path)!r}")


def _value_at(raw: object, path: str) -> object:
    for key in re.findall(r"[^.\[\]]+", path):
        if isinstance(raw, Mapping):
            raw = raw.get(key)
        elif isinstance(raw, list):
            raw = raw[int(key)]
    return raw

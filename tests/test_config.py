"""Configuration: defaults, the documented sample, and the path of the key in every refusal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument

from logservice import bounds, config
from logservice.config import Address, ConfigError

MINIMAL = """
[store]
store_id = "s1"
cluster_id = "c"
data_directories = ["data"]

[bootstrap]
hakeeper_members = [{ store_id = "s1", peer_address = "127.0.0.1:1" }]

[listen]
insecure_plaintext = true
"""

SAMPLE = Path(__file__).parents[1] / "deploy" / "store.example.toml"


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config.parse(text)
    return caught.value


def test_minimal_takes_defaults() -> None:
    parsed = config.parse(MINIMAL)
    raft = parsed.raft
    assert (raft.tick_ms, raft.heartbeat_every_ticks, raft.election_ticks) == (50, 5, 20)
    assert parsed.hakeeper.store_timeout_s == 300
    assert parsed.truncation.interval_s == 10
    assert parsed.store.host_label == "s1"


def test_a_heartbeat_comes_four_times_in_an_election_timeout_unless_it_is_said() -> None:
    """Whatever the timeout is, the default passes the check that a heartbeat may be lost."""
    for ticks in range(3, 100):
        raft = config.parse(f"{MINIMAL}[raft]\nelection_ticks = {ticks}\n").raft
        assert 3 * raft.heartbeat_every_ticks <= raft.election_ticks
    assert config.parse(MINIMAL + "[raft]\nheartbeat_ticks = 2\n").raft.heartbeat_every_ticks == 2


def test_sample_parses_and_states_the_defaults() -> None:
    sample = config.load(SAMPLE)
    minimal = config.parse(MINIMAL)
    for section in ("raft", "hakeeper", "storage", "truncation", "limits"):
        assert getattr(sample, section) == getattr(minimal, section), section
    assert sample.bootstrap.log_shards == minimal.bootstrap.log_shards
    assert sample.bootstrap.replicas == minimal.bootstrap.replicas


def test_sample_names_every_key() -> None:
    text = SAMPLE.read_text()
    for section in config.StoreConfig.__struct_fields__:
        assert f"[{section}]" in text
        struct = getattr(config.parse(MINIMAL), section)
        for key in struct.__struct_fields__:
            assert f"{key} = " in text, f"{section}.{key}"


def test_data_directories_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    path.write_text(MINIMAL)
    assert config.load(path).store.data_directories == [str(tmp_path / "data")]


@pytest.mark.parametrize(
    ("directories", "field"),
    [
        ([], "store.data_directories"),
        ([""], "store.data_directories"),
        (["a", "b", "./a/"], "store.data_directories[2]"),
        ([f"d{n}" for n in range(bounds.DATA_DIRECTORIES_MAX + 1)], "store.data_directories"),
    ],
)
def test_data_directories_that_make_no_sense(directories: list[str], field: str) -> None:
    text = MINIMAL.replace('["data"]', repr(directories))
    with pytest.raises(config.ConfigError) as refused:
        config.parse(text)
    assert refused.value.metadata["field"].startswith(field)


def labelled(value: str) -> str:
    return MINIMAL.replace("[bootstrap]", f"labels = {value}\n\n[bootstrap]", 1)


def test_labels_of_a_store() -> None:
    assert config.parse(MINIMAL).store.labels == {}
    parsed = config.parse(labelled("{ zone = 'a', region = 'eu', disk = 'nvme' }"))
    assert parsed.store.labels == {"zone": "a", "region": "eu", "disk": "nvme"}
    given = config.parse(MINIMAL, ['store.labels={ zone = "b" }'])
    assert given.store.labels == {"zone": "b"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{ host = 'h' }", "store.host is that label"),
        ("{ zone = '' }", "expected str"),
        ("{ zone = 'a/b' }", "expected str"),
        ("{ zone = 1 }", "{'zone': 1}"),
        ("'a'", "expected object"),
    ],
)
def test_refused_labels(value: str, words: str) -> None:
    error = refused(labelled(value))
    assert error.metadata["field"].startswith("store.labels")
    assert words in str(error)


def test_labels_are_bounded() -> None:
    def text(labels: dict[str, str]) -> str:
        pairs = ", ".join(f"{key} = '{value}'" for key, value in labels.items())
        return labelled("{" + pairs + "}")

    most = {f"n{number:02}": "v" for number in range(bounds.STORE_LABELS_MAX)}
    assert config.parse(text(most)).store.labels == most
    assert "length <= 32" in str(refused(text({**most, "another": "v"})))
    long = {f"n{number:02}": "v" * 125 for number in range(bounds.STORE_LABEL_BYTES_MAX // 128)}
    assert config.parse(text(long)).store.labels == long
    assert "in all, got 2050" in str(refused(text({**long, "a": "b"})))


def test_as_many_data_directories_as_are_allowed() -> None:
    directories = [f"d{n}" for n in range(bounds.DATA_DIRECTORIES_MAX)]
    parsed = config.parse(MINIMAL.replace('["data"]', repr(directories)))
    assert parsed.store.data_directories == directories


@pytest.mark.parametrize(
    ("section", "line", "field", "words"),
    [
        ("raft", "election_ticks = 1", "raft.election_ticks", "expected int >= 2, got 1"),
        ("raft", "tick_ms = 'fast'", "raft.tick_ms", "expected int, got 'fast'"),
        ("raft", "tick_ms = true", "raft.tick_ms", "expected int, got True"),
        ("raft", "tick = 50", "raft.tick", "unknown key"),
        ("rafts", "tick_ms = 50", "rafts", "unknown key"),
        (
            "raft",
            "heartbeat_ticks = 2\nelection_ticks = 5",
            "raft.election_ticks",
            "expected >= 3 x",
        ),
        ("limits", "read_bytes_max = 1.5", "limits.read_bytes_max", "expected int, got 1.5"),
        ("limits", "rpc_timeout_max_s = 1.0", "limits.rpc_timeout_default_s", "expected <="),
        ("limits", "read_bytes_max = 10", "limits.read_bytes_default", "expected <="),
        (
            "limits",
            f"tail_read_bytes_per_s = {bounds.CATCH_UP_BYTES_PER_S_MIN - 1}",
            "limits.tail_read_bytes_per_s",
            "expected int >= 1048576, got 1048575",
        ),
        (
            "limits",
            f"catch_up_read_bytes_per_s = {bounds.CATCH_UP_BYTES_PER_S_MAX + 1}",
            "limits.catch_up_read_bytes_per_s",
            "expected int <= 17179869184",
        ),
        (
            "limits",
            "catch_up_read_bytes_per_s = 'fast'",
            "limits.catch_up_read_bytes_per_s",
            "expected int, got 'fast'",
        ),
        ("hakeeper", "store_timeout_s = 2.0", "hakeeper.store_timeout_s", "expected >= 3 x"),
        ("listen", "client = 'localhost'", "listen.client", "expected 'host:port'"),
        ("listen", "client = '::1:80'", "listen.client", "IPv6 host in brackets"),
        ("listen", "client = '127.0.0.1:70000'", "listen.client", "expected 'host:port'"),
        ("listen", "peer = '0.0.0.0:0'", "listen.peer", "configure [tls]"),
        ("listen", "advertise_peer = 'a:0'", "listen.advertise_peer", "a port others can dial"),
        (
            "storage",
            "keys_file = 'k'\nkeys_command = ['k']",
            "storage.keys_file",
            "from a file or a command",
        ),
        ("storage", "keys_interval_s = 0", "storage.keys_interval_s", "expected float > 0"),
        ("storage", "segment_bytes = 10", "storage.segment_bytes", "expected int >= 1048576"),
        ("storage", "scrub_bytes_per_s = 0", "storage.scrub_bytes_per_s", "expected int >= 524288"),
        (
            "storage",
            f"scrub_bytes_per_s = {bounds.SCRUB_BYTES_PER_S_MIN - 1}",
            "storage.scrub_bytes_per_s",
            "expected int >= 524288, got 524287",
        ),
        (
            "storage",
            f"scrub_bytes_per_s = {bounds.SCRUB_BYTES_PER_S_MAX + 1}",
            "storage.scrub_bytes_per_s",
            "expected int <= 1073741824",
        ),
        (
            "storage",
            "scrub_bytes_per_s = 5e6",
            "storage.scrub_bytes_per_s",
            "expected int, got 5000000.0",
        ),
    ],
)
def test_refusal_names_the_key(section: str, line: str, field: str, words: str) -> None:
    # MINIMAL ends inside [listen].
    error = refused(MINIMAL + (f"{line}\n" if section == "listen" else f"[{section}]\n{line}\n"))
    assert error.metadata["field"] == field
    assert words in error.message
    assert error.message.startswith(f"{field}: ")


@pytest.mark.parametrize(
    "rate", [bounds.SCRUB_BYTES_PER_S_MIN, bounds.SCRUB_BYTES_PER_S, bounds.SCRUB_BYTES_PER_S_MAX]
)
def test_rates_of_the_scrub_up_to_both_bounds(rate: int) -> None:
    parsed = config.parse(MINIMAL, [f"storage.scrub_bytes_per_s={rate}"])
    assert parsed.storage.scrub_bytes_per_s == rate


def test_at_the_lowest_rate_of_the_scrub_peers_still_get_their_answers() -> None:
    """One waits for all others that are served, one that is asked for here, and a slice."""
    range_bytes = bounds.COMPARE_RANGE_BYTES + bounds.COMPARE_RANGE_COST_BYTES
    waited_for = bounds.COMPARE_SERVED_MAX * range_bytes + bounds.SCRUB_SLICE_BYTES
    wait_s = waited_for / bounds.SCRUB_BYTES_PER_S_MIN
    assert wait_s < 0.7 * bounds.COMPARE_REQUEST_TIMEOUT_S


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ('store_id = "s1"\n', "", "store.store_id", "required key is missing"),
        ('store_id = "s1"\n', 'store_id = "../x"\n', "store.store_id", "matching regex"),
        ("[store]", "[storee]", "storee", "unknown key"),
        ("127.0.0.1:1", "nowhere", "bootstrap.hakeeper_members[0].peer_address", "'host:port'"),
        ("127.0.0.1:1", "127.0.0.1:0", "bootstrap.hakeeper_members[0].peer_address", "dial"),
        ('{ store_id = "s1",', "{", "bootstrap.hakeeper_members[0].store_id", "missing"),
        ("= [{", "= [3, {", "bootstrap.hakeeper_members[0]", "expected object, got 3"),
    ],
)
def test_refusal_in_required_sections(old: str, new: str, field: str, words: str) -> None:
    assert old in MINIMAL
    error = refused(MINIMAL.replace(old, new))
    assert error.metadata["field"] == field
    assert words in error.message


def test_members_must_differ() -> None:
    twice = '[{ store_id = "s1", peer_address = "a:1" }, { store_id = "s1", peer_address = "a:2" }]'
    once = '[{ store_id = "s1", peer_address = "127.0.0.1:1" }]'
    error = refused(MINIMAL.replace(once, twice))
    assert error.metadata["field"] == "bootstrap.hakeeper_members[1].store_id"


def test_not_toml_and_not_there(tmp_path: Path) -> None:
    assert "not TOML" in refused("[store").message
    with pytest.raises(InvalidArgument, match="cannot read configuration"):
        config.load(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgument, match="cannot read configuration"):
        config.load(tmp_path / "latin.toml")


TLS = """
[tls]
client_ca = "ca.pem"
certificate = "a.pem"
key = "a.key"
peer_ca = "peer-ca.pem"
peer_certificate = "p.pem"
peer_key = "p.key"
"""


def test_plaintext_has_to_be_said() -> None:
    error = refused(MINIMAL.replace("insecure_plaintext = true", ""))
    assert error.metadata["field"] == "tls"
    assert "insecure_plaintext = true" in error.message


@pytest.mark.parametrize("line", ["client = '10.0.0.2:1'", "peer = '10.0.0.2:1'"])
def test_plaintext_stays_on_loopback_whatever_is_said(line: str) -> None:
    error = refused(f"{MINIMAL}{line}\n")
    assert "configure [tls]" in error.message
    secured = MINIMAL.replace("insecure_plaintext = true", line)
    assert config.parse(secured + TLS).tls.enabled


def test_tls_and_plaintext_exclude_each_other() -> None:
    assert refused(MINIMAL + TLS).metadata["field"] == "listen.insecure_plaintext"


@pytest.mark.parametrize("key", ["client_ca", "key", "peer_ca", "peer_certificate", "peer_key"])
def test_tls_files_are_named_all_or_none(key: str) -> None:
    text = MINIMAL.replace("insecure_plaintext = true", "")
    lines = [line for line in TLS.splitlines() if not line.startswith(f"{key} ")]
    assert refused(text + "\n".join(lines)).metadata["field"] == f"tls.{key}"


def test_tls_files_are_relative_to_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    path.write_text(MINIMAL.replace("insecure_plaintext = true", "") + TLS)
    assert config.load(path).tls.peer_key == str(tmp_path / "p.key")


def test_tls_files_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    path.write_text(MINIMAL.replace("insecure_plaintext = true", "") + TLS)
    loaded = config.load(path)
    with pytest.raises(ConfigError) as caught:
        config.check_files(loaded)
    assert caught.value.metadata["field"] == "tls.client_ca"
    assert "No such file" in caught.value.message
    for name in re.findall(r'"(.*\..*)"', TLS):
        (tmp_path / name).touch()
    config.check_files(loaded)


def test_the_archivers_configuration_is_beside_this_one(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    path.write_text(f"{MINIMAL}[archive]\nconfig = 'archive.toml'\n")
    loaded = config.load(path)
    assert loaded.archive.config == str(tmp_path / "archive.toml")
    with pytest.raises(ConfigError) as caught:
        config.check_files(loaded)
    assert caught.value.metadata["field"] == "archive.config"
    (tmp_path / "archive.toml").touch()
    config.check_files(loaded)


def test_the_keys_of_storage_are_beside_this_file(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    path.write_text(f"{MINIMAL}[storage]\nkeys_file = 'keys'\n")
    loaded = config.load(path)
    assert loaded.storage.keys_file == str(tmp_path / "keys")
    with pytest.raises(ConfigError) as caught:
        config.check_files(loaded)
    assert caught.value.metadata["field"] == "storage.keys_file"
    (tmp_path / "keys").touch()
    config.check_files(loaded)
    path.write_text(f"{MINIMAL}[storage]\nkeys_command = ['vault', 'read']\n")
    assert config.load(path).storage.keys_file == ""


@pytest.mark.parametrize(
    ("client", "peer", "admin", "field"),
    [
        ("127.0.0.1:7600", "127.0.0.1:7600", "127.0.0.1:7601", "listen.peer"),
        ("127.0.0.1:7600", "127.0.0.1:7602", "127.0.0.1:7600", "admin.listen"),
        ("127.0.0.1:7600", "127.0.0.1:7602", "127.0.0.1:7602", "admin.listen"),
    ],
)
def test_each_port_has_one_use(client: str, peer: str, admin: str, field: str) -> None:
    text = f"{MINIMAL}client = '{client}'\npeer = '{peer}'\n[admin]\nlisten = '{admin}'\n"
    assert refused(text).metadata["field"] == field
    config.parse(text.replace(f":{7600}", ":0").replace(":7602", ":0"))


def test_more_replicas_than_anybody_names_are_doubted() -> None:
    """And no more than that: in a cluster that runs, stores come and go."""

    def doubts(lines: str) -> list[str]:
        return config.doubts(config.parse(MINIMAL.replace("[listen]", f"{lines}\n[listen]")))

    assert doubts("replicas = 1") == []
    (doubt,) = doubts("replicas = 2")
    assert doubt.startswith("bootstrap.replicas")
    assert doubts("replicas = 2\nlog_shards = 0") == []


def test_reads_are_as_large_as_a_message_allows_and_no_larger() -> None:
    def text(size: int) -> str:
        return f"{MINIMAL}[limits]\nread_bytes_max = {size}\n"

    found = config.parse(text(bounds.READ_BYTES_MAX))
    assert found.limits.read_bytes_max == bounds.READ_BYTES_MAX
    error = refused(text(bounds.READ_BYTES_MAX + 1))
    assert error.metadata["field"] == "limits.read_bytes_max"


def test_so_many_admins_and_no_more() -> None:
    def text(count: int) -> str:
        names = [f"spiffe://d/cluster/c/client/a{number}" for number in range(count)]
        return f"{MINIMAL}[security]\nadmins = {names!r}\n"

    found = config.parse(text(bounds.BOOTSTRAP_ADMINS_MAX))
    assert len(found.security.admins) == bounds.BOOTSTRAP_ADMINS_MAX
    error = refused(text(bounds.BOOTSTRAP_ADMINS_MAX + 1))
    assert error.metadata["field"] == "security.admins"


@pytest.mark.parametrize("uri", ["admin", "spiffe://d/cluster/c/store/s1", "spiffe://d/client/a"])
def test_admins_are_client_identities(uri: str) -> None:
    error = refused(f"{MINIMAL}[security]\nadmins = [{uri!r}]\n")
    assert error.metadata["field"] == "security.admins[0]"


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80, True),
        ("127.9.9.9:80", "127.9.9.9", 80, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:80", "::1", 80, True),
        ("[::]:80", "::", 80, False),
        ("store-1.example:80", "store-1.example", 80, False),
        ("192.168.1.1:65535", "192.168.1.1", 65535, False),
    ],
)
def test_addresses(text: str, host: str, port: int, loopback: bool) -> None:
    address = Address.parse(text, "listen.client")
    assert address == (host, port)
    assert address.loopback is loopback
    assert str(address) == text


def test_assignments_win_over_the_file_and_pass_the_same_checks() -> None:
    parsed = config.parse(
        MINIMAL,
        ["store.store_id=s-2", "raft.tick_ms=20", "admin.listen=127.0.0.1:7601", "audit.data=true"],
    )
    assert (parsed.store.store_id, parsed.raft.tick_ms) == ("s-2", 20)
    assert (parsed.admin.listen, parsed.audit.data) == ("127.0.0.1:7601", True)
    assert config.parse(MINIMAL, ['store.host="7"']).store.host == "7"


@pytest.mark.parametrize(
    ("assignment", "field"),
    [
        ("raft.tick_ms=fast", "raft.tick_ms"),
        ("raft.tick_ms=0", "raft.tick_ms"),
        ("raft.speed=1", "raft.speed"),
        ("store.store_id=", "store.store_id"),
        ("store.store_id=7", "store.store_id"),
        ("store.store_id=1\n[store]\ncluster_id=2", "store.store_id"),
        ("nothing=1", ""),
        ("raft.tick_ms", ""),
        ("raft.tick_ms.x=1", ""),
        ("listen.client=0.0.0.0:1", "listen.client"),
    ],
)
def test_a_wrong_assignment_is_refused(assignment: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(MINIMAL, [assignment])
    assert caught.value.metadata.get("field", "") == field, str(caught.value)


MINIMAL_TLS = MINIMAL.replace("insecure_plaintext = true", "") + TLS
TOKENS = """
[tokens]
issuer = "https://issuer.example"
audience = "logservice"
jwks = "keys.json"
"""


def with_tokens(more: str = "", client: str = "127.0.0.1:7600") -> str:
    listening = MINIMAL_TLS.replace("[listen]", f"[listen]\nclient = '{client}'", 1)
    return f"{listening}{TOKENS}{more}"


def test_tokens_are_off_until_their_keys_are_named() -> None:
    assert not config.parse(MINIMAL).tokens.enabled
    assert config.parse(with_tokens()).tokens.enabled


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[tokens]\nissuer = 'a'", "tokens.jwks"),
        ("[tokens]\njwks_ca = 'a'", "tokens.jwks"),
        ("[tokens]\njwks = 'a'\naudience = 'b'", "tokens.issuer"),
        ("[tokens]\njwks = 'a'\nissuer = 'b'", "tokens.audience"),
        ("[tokens]\njwks = 'a'\nissuer = 'b'\naudience = 'c'", "tokens.jwks"),
    ],
)
def test_what_tokens_need(text: str, field: str) -> None:
    """The last one: TLS."""
    assert refused(f"{MINIMAL}{text}\n").metadata["field"] == field


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("algorithms = ['HS256']", "tokens.algorithms[0]"),
        ("algorithms = ['RS256', 'none']", "tokens.algorithms[1]"),
        ("algorithms = []", "tokens.algorithms"),
        ("name_prefix = '-'", "tokens.name_prefix"),
        ("name_prefix = 'a/b'", "tokens.name_prefix"),
        ("keys_age_max_s = 599.0", "tokens.keys_age_max_s"),
        ("port_offset = 0", "tokens.port_offset"),
        ("port_offset = 58000", "tokens.port_offset"),
        ("port_offset = -7600", "tokens.port_offset"),
        ("port_offset = 1", "tokens.port_offset"),
        ("lifetime_max_s = 0.0", "tokens.lifetime_max_s"),
    ],
)
def test_tokens_out_of_bounds(more: str, field: str) -> None:
    """Algorithms that anybody can sign with are none; each port has one use."""
    peer = "peer = '127.0.0.1:7601'\n"
    text = with_tokens(more).replace("[listen]\n", f"[listen]\n{peer}", 1)
    assert refused(text).metadata["field"] == field


@pytest.mark.parametrize(
    "place", ["http://a/keys", "https:///keys", "ftp://a/k", "https://u:p@a/k", "HTTP://a/k"]
)
def test_keys_come_from_a_file_or_over_https(place: str) -> None:
    text = with_tokens().replace("keys.json", place)
    assert refused(text).metadata["field"] == "tokens.jwks"
    assert config.parse(with_tokens().replace("keys.json", "https://a:8443/k?x=1")).tokens.enabled


def test_the_client_port_must_be_known_for_tokens() -> None:
    assert refused(with_tokens(client="127.0.0.1:0")).metadata["field"] == "tokens.port_offset"


@pytest.mark.parametrize(
    ("admin", "field"),
    [
        ("authentication = 'required'", "admin.authentication"),
        ("certificate = 'a'\nkey = 'b'", "admin.tls"),
        ("tls = true\nkey = 'b'", "admin.certificate"),
        ("tls = true\ncertificate = 'b'", "admin.certificate"),
        ("authentication = 'maybe'", "admin.authentication"),
    ],
)
def test_who_calls_the_admin_port_is_said_over_tls(admin: str, field: str) -> None:
    assert refused(f"{MINIMAL_TLS}[admin]\n{admin}\n").metadata["field"] == field
    assert refused(f"{MINIMAL}[admin]\ntls = true\n").metadata["field"] == "admin.tls"
    config.parse(f"{MINIMAL_TLS}[admin]\ntls = true\nauthentication = 'required'\n")


def test_suites_that_are_not_known_are_refused() -> None:
    for suite in ("AES128-SHA", "ECDHE-RSA-AES128-SHA", "DEFAULT", "TLS_AES_128_GCM_SHA256"):
        text = MINIMAL_TLS.replace("[tls]", f"[tls]\nciphers = ['{suite}']", 1)
        assert refused(text).metadata["field"] == "tls.ciphers[0]"

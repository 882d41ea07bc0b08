"""`logservice store`: a signal before the store handles signals, and what `probe` answers."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from logservice.cli.main import logservice
from logservice.cli.shell import exit_codes
from logservice.config import ConfigError
from logservice.server.tls.pem_files import TlsRefused
from tests.papers import CLIENT, days, uri
from tests.server.secured import CLIENTS, configured, lay_out
from tests.server.tokens.issuer import jwk, key, publish

SLOW_START = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "logservice.server.process":
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
from logservice.cli.main import main
main()
"""


@pytest.mark.processes
def test_a_signal_during_the_start_ends_it_in_good_order(tmp_path: Path) -> None:
    (tmp_path / "store.toml").write_text(WRONG + "[listen]\ninsecure_plaintext = true\n")
    store = subprocess.Popen(
        [sys.executable, "-c", SLOW_START, "store", "run", "-c", str(tmp_path / "store.toml")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert store.stdout is not None
    with store.stdout:
        assert store.stdout.readline() == "importing\n"
        # The signal has a handler: in a container the kernel would drop a signal without one.
        status = Path(f"/proc/{store.pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        assert caught & 1 << (signal.SIGTERM - 1)
        store.terminate()
        assert store.wait(60) == exit_codes.OK


@contextmanager
def answering(answer: bytes, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """An address where a client gets these bytes; with `context` over TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with contextlib.suppress(ssl.SSLError), connection:
                if context is not None:
                    connection = context.wrap_socket(connection, server_side=True)
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


def probe(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(logservice, ["store", "probe", *words], standalone_mode=False)
    assert done.exception is None, done.exception
    return done.return_value or 0, done.output


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n", exit_codes.OK, "ok"),
        (
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nstuck",
            exit_codes.NEGATIVE,
            "stuck",
        ),
        (b"SSH-2.0-OpenSSH\r\n", exit_codes.NEGATIVE, "no answer"),
        (b"", exit_codes.NEGATIVE, "no answer"),
    ],
)
def test_probe(answer: bytes, code: int, text: str) -> None:
    with answering(answer) as address:
        found, shown = probe(address, "--ready")
    assert (found, text in shown) == (code, True), shown


def test_probe_of_nobody() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # no process listens there
        code, shown = probe(f"127.0.0.1:{bound.getsockname()[1]}")
    assert code == exit_codes.NEGATIVE
    assert "no answer" in shown


def test_probe_of_a_port_that_speaks_tls(tmp_path: Path) -> None:
    """The certificate is not looked at; without `--tls` there is no answer."""
    CLIENTS.issue(uri("store", "s1"), hosts=("elsewhere",)).write(tmp_path / "port")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "port.pem", tmp_path / "port.key")
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
    for options, code in ((["--tls"], exit_codes.OK), ([], exit_codes.NEGATIVE)):
        with answering(answer, context) as address:
            assert probe(address, *options)[0] == code


WRONG = """
[store]
store_id = "s1"
cluster_id = "c"
data_directories = ["data"]
[bootstrap]
hakeeper_members = [{ store_id = "s1", peer_address = "127.0.0.1:1" }]
replicas = 1
"""
NO_FILES = "[tls]\n" + "".join(
    f"{name} = 'missing.pem'\n"
    for name in ("client_ca", "certificate", "key", "peer_ca", "peer_certificate", "peer_key")
)


@pytest.mark.parametrize("command", ["run", "check-config"])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (NO_FILES, "tls.client_ca: cannot read"),
        (
            "[listen]\ninsecure_plaintext = true\nclient = '127.0.0.1:7'\npeer = '127.0.0.1:7'",
            "listen.peer",
        ),
        ("[listen]\ninsecure_plaintext = true\nclient = 'localhost'", "expected 'host:port'"),
    ],
)
def test_a_wrong_configuration_ends_with_2_before_anything_is_done(
    command: str, more: str, words: str, tmp_path: Path
) -> None:
    """The unit of deploy/systemd is told not to restart the store after this code."""
    config = tmp_path / "store.toml"
    config.write_text(WRONG + more)
    done = subprocess.run(
        [sys.executable, "-m", "logservice", "store", command, "-c", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (exit_codes.USAGE, "")
    assert words in done.stderr
    assert "=)" not in done.stderr
    assert list(tmp_path.iterdir()) == [config]


def test_what_is_most_likely_not_meant_is_a_warning(tmp_path: Path) -> None:
    config = tmp_path / "store.toml"
    config.write_text(
        WRONG.replace("replicas = 1", "replicas = 5") + "[listen]\ninsecure_plaintext = true\n"
    )
    done = CliRunner().invoke(logservice, ["store", "check-config", "-c", str(config)])
    assert done.exit_code == 0
    assert "5 replicas need as many stores" in done.output


def test_certificates_are_looked_at_too(tmp_path: Path) -> None:
    """Certificates with which a store would not start are found before it is started."""
    lay_out(tmp_path)
    configured(tmp_path)
    config = str(tmp_path / "store.toml")
    run = CliRunner().invoke
    good = run(logservice, ["store", "check-config", "-c", config])
    assert (good.exit_code, good.output) == (0, "")
    CLIENTS.issue(uri("store", "s1"), purposes=CLIENT).write(tmp_path / "client-plane")
    bad = run(logservice, ["store", "check-config", "-c", config])
    assert isinstance(bad.exception, TlsRefused)
    assert "is not for answering" in str(bad.exception)
    CLIENTS.issue(uri("store", "s1"), begin=days(-9), end=days(1)).write(tmp_path / "client-plane")
    old = run(logservice, ["store", "check-config", "-c", config])
    assert (old.exit_code, "expires at" in old.output) == (0, True)
    assert not (tmp_path / "data").exists()


def test_the_keys_of_tokens_are_looked_at_too(tmp_path: Path) -> None:
    """As far as they are in a file: a store would not start with a wrong one either."""
    lay_out(tmp_path)
    configured(tmp_path, '[tokens]\nissuer = "i"\naudience = "a"\njwks = "keys.json"\n')
    config = str(tmp_path / "store.toml")
    publish(tmp_path / "keys.json", jwk(key("ES256"), "k1"))
    good = CliRunner().invoke(logservice, ["store", "check-config", "-c", config])
    assert (good.exit_code, good.output) == (0, "")
    publish(tmp_path / "keys.json", {"kty": "oct", "k": "AAAA", "kid": "k1"})
    bad = CliRunner().invoke(logservice, ["store", "check-config", "-c", config])
    assert isinstance(bad.exception, ConfigError)
    assert "a secret is out" in str(bad.exception)
    assert bad.exception.metadata["field"] == "tokens.jwks"

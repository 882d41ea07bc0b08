"""Builds the one virtual environment of this checkout: `.venv` at the root, shared by all targets.

It runs on the bare system interpreter, so it uses only the standard library. It alone decides what
a machine must have and which pins are installed.

- It never builds the environment twice: `.venv/.stamp` holds a hash of the pins and of the
  interpreter, and when it matches, nothing is done. When only the pins changed, pip brings the
  existing environment up to them.
- Some system packages are needed: Debian splits `venv` off the interpreter and ships no Java;
  up to Python 3.12 plyvel has wheels only for x86-64 and is compiled elsewhere (from 3.13 on it is
  plyvel-next, which has them). As root the set-up installs the missing ones; otherwise it prints
  the exact command and stops.
- WITHOUT_JAVA=1 waives Java: everything but the Spark parts works without it.
- The pins are complete: pip runs with --no-deps and --no-build-isolation, and `pip check` judges.
- pip refuses a file whose hash is not in `requirements/*.txt` (--require-hashes), from whatever
  index it comes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / ".stamp"
PINS = ("build", "runtime", "archive", "codecs", "spark", "delta", "otel", "bench", "dev")
OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON_WITH_PLYVEL = (3, 12)
PIP_ATTEMPTS = 3


def main() -> int:
    """Bring `.venv` to the pins; returns the exit code."""
    if sys.version_info[:2] < OLDEST_PYTHON:
        print(
            f"Python {'.'.join(map(str, OLDEST_PYTHON))} or newer is needed; this is {sys.version}"
        )
        return 1
    with open(ROOT / "requirements" / "build.txt", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two `make` at once: the second finds the stamp
        stamp = _wanted_stamp()
        if _installed_stamp() == stamp:
            return 0
        started = time.monotonic()
        if not _provide_system_packages():
            return 1
        _create_environment()
        _install_pins()
        STAMP.write_text(stamp + "\n", encoding="utf-8")
    print(f"environment ready in {time.monotonic() - started:.0f} s: {ENVIRONMENT}")
    return 0


def _pin_file(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.txt"


def _wanted_stamp() -> str:
    """A value that changes when a pin, this script, a package's metadata or the interpreter
    does.
    """
    digest = hashlib.sha256(f"{sys.version_info[:2]} {ROOT}".encode())
    sources = [_pin_file(name) for name in PINS]
    sources += [Path(__file__), ROOT / "pyproject.toml", ROOT / "client" / "pyproject.toml"]
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _installed_stamp() -> str | None:
    try:
        return STAMP.read_text(encoding="utf-8").strip()
    except OSError:
        return None


def missing_system_packages() -> list[str]:
    """Debian's names of what this machine lacks."""
    missing = []
    if not _interpreter_has_venv():
        missing.append("python3-venv")
    if os.environ.get("WITHOUT_JAVA") != "1" and shutil.which("java") is None:
        missing.append("default-jre-headless")
    if sys.version_info[:2] <= NEWEST_PYTHON_WITH_PLYVEL and platform.machine() != "x86_64":
        if shutil.which("g++") is None:
            missing.append("g++")
        if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
            missing.append("python3-dev")
        if not Path("/usr/include/leveldb/db.h").exists():
            missing.append("libleveldb-dev")
    return missing


def _interpreter_has_venv() -> bool:
    """Debian keeps the `venv` module but moves `ensurepip`, which it needs, into python3-venv."""
    check = [sys.executable, "-c", "import venv, ensurepip"]
    return subprocess.run(check, check=False, capture_output=True).returncode == 0


def _provide_system_packages() -> bool:
    missing = missing_system_packages()
    if not missing:
        return True
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    line = "apt-get update && " + " ".join(install)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(
            f"This machine lacks {', '.join(missing)}. Run as root, then try again:\n\n    {line}\n"
        )
        if missing == ["default-jre-headless"]:
            print("or go on without Spark: prefix the command with WITHOUT_JAVA=1")
        return False
    print(f"installing system packages: {line}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # A new machine may still be installing something else.
    patient = [*install, "-o", "DPkg::Lock::Timeout=600"]
    for command in (["apt-get", "update"], patient):
        if subprocess.run(command, env=environment, check=False).returncode != 0:
            print(f"failed: {' '.join(command)}")
            return False
    return True


def _create_environment() -> None:
    python = ENVIRONMENT / "bin" / "python"
    version = "import sys; print(sys.version_info[:2])"
    if python.exists():
        found = subprocess.run([python, "-c", version], check=False, capture_output=True, text=True)
        if found.stdout.strip() == str(sys.version_info[:2]):
            return
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)


def _install_pins() -> None:
    """Install build tools first: source packages are built with them, without build isolation."""
    _pip("install", "--no-deps", "--require-hashes", "-r", str(_pin_file("build")))
    pins = [argument for name in PINS[1:] for argument in ("-r", str(_pin_file(name)))]
    _pip("install", "--no-deps", "--require-hashes", "--no-build-isolation", *pins)
    here = [argument for path in (ROOT / "client", ROOT) for argument in ("-e", str(path))]
    _pip("install", "--no-deps", "--no-build-isolation", *here, attempts=1)
    _pip("check", attempts=1)


def _pip(*arguments: str, attempts: int = PIP_ATTEMPTS) -> None:
    """Runs pip quietly; a registry that answers slowly gets a few attempts."""
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    command += [arguments[0], *([] if arguments[0] == "check" else ["-q"]), *arguments[1:]]
    print("pip " + " ".join(arguments).replace(f"{ROOT}/", ""), flush=True)
    for attempt in range(1, attempts + 1):
        if subprocess.run(command, check=False).returncode == 0:
            return
        print(f"pip failed (attempt {attempt} of {attempts})", flush=True)
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env bash
# need_program.sh PROGRAM PACKAGE: makes sure that PROGRAM is there, from Debian's PACKAGE if it is not. PROGRAM is a name
# that is looked up in PATH, or a pattern of paths.
# Lanes that want a browser or Prometheus's checker use it; nothing else needs those programs.
set -euo pipefail
program=$1 package=$2
is_there() {
    if [[ $program == */* ]]; then compgen -G "$program" >/dev/null; else command -v "$program" >/dev/null; fi
}
is_there && exit 0
if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    echo "$program is missing; install it: apt-get install --no-install-recommends $package" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# A new machine may be busy installing something else.
install=(apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600
    -o Acquire::Retries=3 "$package")
"${install[@]}" >/dev/null 2>&1 || {
    apt-get update -qq -o Acquire::Retries=3 || true # another source than this package's may be down
    "${install[@]}" >/dev/null
}
is_there

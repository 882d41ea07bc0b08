#!/usr/bin/env bash
# need_engine.sh: what `make test-docker` needs besides Python, from Debian; installed as root. Where that
# cannot be, it says so and ends well: the tests then skip with the reason.
set -euo pipefail
cd "$(dirname "$0")"
while read -r program package; do
    ./need_program.sh "$program" "$package" </dev/null || echo "no $program: the tests that need it will say so"
done <<'EOF'
dockerd docker.io
docker docker.io
docker-compose docker-compose
debootstrap debootstrap
iptables iptables
prometheus prometheus
strace strace
systemd-analyze systemd
EOF

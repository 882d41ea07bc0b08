#!/usr/bin/env bash
# make_image.sh: the image of deploy/Dockerfile, and its size. BASE: another base image.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! said=$(docker info --format '{{.ServerVersion}}' 2>&1); then
    echo "no container engine answers here, so no image was built. docker info: $(tail -n 1 <<<"$said")" >&2
    echo "where one is: docker build -t logservice -f deploy/Dockerfile ." >&2
    exit 1
fi
docker build -t logservice -f deploy/Dockerfile ${BASE:+--build-arg "BASE=$BASE"} .
docker image inspect --format '{{index .RepoTags 0}}: {{.Size}} bytes' logservice

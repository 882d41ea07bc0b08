#!/usr/bin/env bash
# Regenerates client/logservice_wire/v1 from proto/ with the oldest supported generator.
#
#   tools/generate_proto.sh           writes the files
#   tools/generate_proto.sh --check   fails if the committed files differ from what would be written
#
# The generator needs an older protobuf than the service runs on, so it lives in an environment of its
# own, made on first use and kept until its pins change.
set -euo pipefail
cd "$(dirname "$0")/.."

environment=$("${PYTHON:-python3}" -m tools.own_environment proto)

generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT
"$environment/python" -W ignore -m grpc_tools.protoc -Iproto \
    --python_out="$generated" --pyi_out="$generated" --grpc_python_out="$generated" \
    proto/logservice_wire/v1/*.proto

committed=client/logservice_wire/v1
if [[ ${1:-} == --check ]]; then
    # The package marker is ours, everything else is the generator's.
    diff -r -x __init__.py -x __pycache__ "$generated/logservice_wire/v1" "$committed"
    echo "generated code is up to date"
else
    rm -f "$committed"/*_pb2.py "$committed"/*_pb2.pyi "$committed"/*_pb2_grpc.py
    cp "$generated"/logservice_wire/v1/* "$committed/"
    echo "wrote $committed"
fi

#!/bin/sh
# Writes packages/protocol/src/gen from the .proto files. The result is checked in; run this
# after changing a .proto (needs Debian's protobuf-compiler).
set -eu
cd "$(dirname "$0")/.."
protoc -I packages/protocol/proto --plugin=protoc-gen-es=node_modules/.bin/protoc-gen-es \
  --es_out=packages/protocol/src/gen --es_opt=target=ts packages/protocol/proto/*.proto

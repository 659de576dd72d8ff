#!/bin/bash
# Wraps one root file system tar into a docker-archive with a config. Called by build-python.sh.
#
#   docker-archive.sh LAYER.tar OUT.tar NAME CMD-AS-JSON LABELS-AS-JSON-MEMBERS
#
# The layer stays uncompressed, so reading it back costs nothing. Deterministic: names sorted, times
# and owners fixed, the image id follows from the content.
set -euo pipefail
layer=$1 out=$2 name=$3 cmd=$4 labels=$5
epoch=${SOURCE_DATE_EPOCH:?set SOURCE_DATE_EPOCH: the archive must not depend on the time of its making}
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
folder=$(mktemp -d "$(dirname "$out")/archive.XXXXXX")
trap 'rm -rf "$folder"' EXIT

diff_id=$(sha256sum "$layer" | cut -d' ' -f1)
mkdir "$folder/$diff_id"
mv "$layer" "$folder/$diff_id/layer.tar"
# PATH is that of Docker's Python images.
cat > "$folder/config.json" <<JSON
{"architecture":"amd64","os":"linux","created":"$created","config":{"Env":["PATH=/usr/local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin","LANG=C.UTF-8"],"Cmd":$cmd,"WorkingDir":"/","Labels":{$labels}},"rootfs":{"type":"layers","diff_ids":["sha256:$diff_id"]},"history":[{"created":"$created","created_by":"tools/images"}]}
JSON
config=$(sha256sum "$folder/config.json" | cut -d' ' -f1).json
mv "$folder/config.json" "$folder/$config"
printf '[{"Config":"%s","RepoTags":["%s"],"Layers":["%s/layer.tar"]}]\n' "$config" "$name" "$diff_id" > "$folder/manifest.json"
tar --sort=name --format=pax --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime \
  --owner=0 --group=0 --numeric-owner --mode='u+rwX,go+rX' --mtime="@$epoch" -C "$folder" -cf "$out" manifest.json "$config" "$diff_id"

#!/bin/sh
# One step of group `linux`, run as root inside both machines: prints `name value`, one line a figure.
#   linux.sh docker-ready | docker-image | docker-run | fio-write | fio-randread | fio-fsync | untar TAR | iperf3 ADDRESS
set -e
work=/root/bench
mkdir -p $work

now() { date +%s%3N; }

# Field of fio's terse output, counted from 1. Arguments: field, then fio's own.
fio_field() {
  field=$1
  shift
  fio --minimal --time_based --runtime=4 --filename=$work/fio "$@" | grep '^3;' | cut -d ';' -f "$field"
}

case $1 in
  docker-ready)
    begin=$(now)
    # Again when containerd was too slow for dockerd, as on a busy host.
    for try in 1 2 3; do systemctl start docker.service && break; done
    for try in $(seq 600); do
      docker version >/dev/null 2>&1 && break
      sleep 0.1
    done
    docker version >/dev/null
    echo "linux-docker-ready $(($(now) - begin))"
    ;;
  docker-image)
    mkdir -p $work/root/bin
    cp /bin/busybox $work/root/bin/
    ln -sf busybox $work/root/bin/true
    tar -C $work/root -c . | docker import -c 'ENV PATH=/bin' - bb:1 >/dev/null
    ;;
  docker-run)
    begin=$(now)
    docker run --rm bb:1 true
    echo "linux-docker-run $(($(now) - begin))"
    ;;
  # MB/s
  fio-write)
    rate=$(fio_field 48 --name=write --rw=write --bs=1M --size=512M --direct=1 --ioengine=libaio --iodepth=4)
    echo "linux-fio-write $((rate * 1024 / 1000000))"
    ;;
  # A second
  fio-randread)
    echo "linux-fio-randread $(fio_field 8 --name=read --rw=randread --bs=4k --size=512M --direct=1 --ioengine=libaio --iodepth=16)"
    ;;
  fio-fsync)
    echo "linux-fio-fsync $(fio_field 49 --name=sync --rw=write --bs=4k --size=64M --fsync=1 --ioengine=psync)"
    ;;
  # Files a second, until all of it is on the disk. The tar is read once before, so that it comes from memory.
  untar)
    rm -rf $work/tree
    mkdir $work/tree
    sync
    cat "$2" >/dev/null
    begin=$(now)
    tar -xf "$2" -C $work/tree
    sync
    end=$(now)
    count=$(find $work/tree -type f | wc -l)
    [ "$count" = 50000 ] || { echo "untar made $count files" >&2; exit 1; }
    echo "linux-untar-50k $((count * 1000 / (end - begin)))"
    ;;
  # Mbit/s, as received
  iperf3)
    iperf3 --client "$2" --time 4 --json >$work/iperf3.json
    python3 -c 'import json, sys; print("linux-iperf3", round(json.load(open(sys.argv[1]))["end"]["sum_received"]["bits_per_second"] / 1e6))' $work/iperf3.json
    ;;
  *)
    echo "no step $1" >&2
    exit 2
    ;;
esac

#!/bin/bash
# First process of the machine that tools/test-kvm.sh boots: makes a host of it, one with KVM, runs tests/kvm there and
# powers off. Console: ttyS0; what the test is to know goes to ttyS1, one `name value` a line.
#
#   inside.sh [VITEST ARGUMENT…]
set -uo pipefail
export PATH=/payload/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts /dev/pts
ln -sf pts/ptmx /dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
ln -sf /proc/self/fd /dev/fd
mkdir -p "/lib/modules/$(uname -r)"
mount -t ext4 -o ro /dev/vdc "/lib/modules/$(uname -r)"
mkdir -p /exchange
mount -t ext4 /dev/vdd /exchange
hostname kvm-host
echo '127.0.0.1 localhost kvm-host' >/etc/hosts
ip link set lo up

report() { printf '%s %s\n' "$1" "$2" >/dev/ttyS1; }
finish() {
  report finished "$1"
  cd /
  umount /exchange
  sync
  echo o >/proc/sysrq-trigger
  sleep 60
}

modprobe -a kvm_amd tun || finish modprobe
# As udev does.
groupadd -f --system kvm
chgrp kvm /dev/kvm && chmod 660 /dev/kvm
chmod 666 /dev/net/tun
report kernel "$(uname -r)"
report qemu "$(qemu-system-x86_64 --version | head -n1)"
report node "$(node --version)"
report booted "$(cut -d' ' -f1 /proc/uptime)"

cd /payload/checkout || finish payload
export SANDLOT_TEST_KVM=auto SANDLOT_TEST_SLOWNESS=20 SANDLOT_KVM_EXCHANGE=/exchange/it
export SANDLOT_KVM_STATE=/var/lib/sandlot-kvm
! grep -q sandlot.second /proc/cmdline || set -- tests/kvm/move.test.ts
if [ -n "${SANDLOT_KVM_SHELL:-}" ]; then bash -c "$SANDLOT_KVM_SHELL"; finish shell; fi
node node_modules/vitest/vitest.mjs run --project kvm --no-file-parallelism --reporter=verbose --reporter=json \
  --outputFile.json=/tmp/report.json "$@" </dev/null 2>&1 | cat
status=${PIPESTATUS[0]}
counts=$(node tools/checks/count-report.mjs /tmp/report.json $status) || counts='0 1 0'
report counts "$counts"
report took "$(cut -d' ' -f1 /proc/uptime)"
finish yes

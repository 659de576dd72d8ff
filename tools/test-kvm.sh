#!/bin/bash
# `make test-kvm`: the KVM path on a host without KVM. Boots a machine in QEMU's emulation of an AMD processor with SVM, so that
# inside it /dev/kvm works, and runs tests/kvm there; on a host whose KVM works it runs them on the host. The last line is
# `N passed, M failed`. Needs no root without KVM. Carries a Debian of its own (tools/images/build-kvm-host.sh), this
# host's Node and what is built of this checkout.
#
#   tools/test-kvm.sh [VITEST ARGUMENT…]
#   SANDLOT_KVM_SHELL='COMMAND' tools/test-kvm.sh     runs that in the machine, and no tests: to look around
set -uo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
logs=$PWD/.cache/log
mkdir -p "$logs"
began=$SECONDS
passed=0 failed=0
# Longest life of the machine; the whole is to take less than 25 minutes on 2 quiet cores.
limit=${SANDLOT_KVM_LIMIT_S:-2400}

ok() { passed=$((passed + 1)); echo "ok      $*"; }
bad() { failed=$((failed + 1)); echo "FAILED  $*"; }
end() {
  printf 'make test-kvm took %d s\n%d passed, %d failed\n' $((SECONDS - began)) $passed $failed
  [ $failed = 0 ]
  exit
}

work= machine=
clean_up() {
  trap - EXIT INT TERM
  # `timeout` passes it on, which it could not do with a KILL.
  [ -z "$machine" ] || { kill -TERM "$machine" && wait "$machine"; } 2>/dev/null
  [ -z "$work" ] || rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

tools/setup/all.sh --test || { bad "set-up"; end; }
# What the probe says here decides where the tests run.
said=$(node tools/kvm/say-accelerator.mjs) || { bad "the probe on this host"; end; }
echo "this host: $said"
if [ "${said%% *}" = kvm ]; then
  report=$logs/vitest-kvm.json
  rm -f "$report"
  tools/leftovers.sh >"$logs/leftovers.kvm"
  SANDLOT_TEST_KVM=auto npx --no-install vitest run --project kvm --no-file-parallelism --reporter=verbose --reporter=json \
    --outputFile.json="$report" "$@" </dev/null
  read -r p f _ < <(node tools/checks/count-report.mjs "$report" $? || echo 0 1 0)
  passed=$((passed + p)) failed=$((failed + f))
  if tools/leftovers.sh --since "$logs/leftovers.kvm"; then ok "nothing left"; else bad "left on the host: see above"; fi
  end
fi
ok "the probe chooses emulation on this host"

root=$(tools/images/build-kvm-host.sh) || { bad "the machine's root"; end; }
work=$(mktemp -d "${TMPDIR:-/tmp}/sandlot-kvm.XXXXXX")

# Mounts the root and becomes what lies on the second disk.
mkdir -p "$work/initramfs/bin"
cp /bin/busybox "$work/initramfs/bin/"
(cd "$work/initramfs" && cpio -id --quiet modules/virtio_blk.ko <"$OLDPWD/.cache/guest/initramfs.cpio")
cat >"$work/initramfs/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /dev /new
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox insmod /modules/virtio_blk.ko
while ! [ -b /dev/vdd ]; do /bin/busybox sleep 0.2; done
/bin/busybox mount -t ext4 /dev/vda /new
/bin/busybox mount -t ext4 /dev/vdb /new/payload
/bin/busybox mount -t devtmpfs dev /new/dev
exec /bin/busybox switch_root /new /payload/first
INIT
chmod 755 "$work/initramfs/init"
(cd "$work/initramfs" && find . | cpio -o -H newc --quiet) >"$work/initramfs.cpio"

# The payload: Node with the libraries that a Debian may lack, and of the checkout what runs.
mkdir -p "$work/payload/bin" "$work/payload/lib" "$work/payload/checkout/.cache"
cp "$(node -p process.execPath)" "$work/payload/bin/node"
ldd "$work/payload/bin/node" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s)\.so/ {print $3}' |
  xargs -r cp -t "$work/payload/lib"
{
  echo '#!/bin/bash'
  [ -z "$(ls "$work/payload/lib")" ] || echo 'export LD_LIBRARY_PATH=/payload/lib'
  printf 'export SANDLOT_KVM_SHELL=%q\n' "${SANDLOT_KVM_SHELL:-}"
  printf 'exec /bin/bash /payload/checkout/tools/kvm/inside.sh%s\n' "$(printf ' %q' "$@")"
} >"$work/payload/first"
chmod 755 "$work/payload/first"
tar -c --exclude=node_modules/@biomejs --exclude=node_modules/typescript --exclude=node_modules/better-sqlite3/deps \
  --exclude='*.map' --exclude='*.d.ts' --exclude=node_modules/.vite --exclude='packages/*/src' --exclude='packages/*/tests' \
  package.json vitest.config.ts tsconfig.base.json bin packages node_modules tests tools .cache/guest |
  tar -x -C "$work/payload/checkout"
mke2fs -q -t ext4 -O ^has_journal -d "$work/payload" "$work/payload.ext4" \
  "$(($(du -sm "$work/payload" | cut -f1) * 5 / 4 + 64))M" || { bad "the payload"; end; }
rm -rf "$work/payload"

# What the two boots give each other.
truncate -s 2G "$work/exchange.ext4"
mke2fs -q -t ext4 -O ^has_journal "$work/exchange.ext4" || { bad "the exchange disk"; end; }

khz=$(.cache/guest/measure-tsc)
# boot NAME PROCESSOR KERNEL-ARGUMENTS: runs the machine to its end and counts. Processor and clock are as in packages/vmm/src/qemu/argv.ts.
# One processor: with two, each a thread of QEMU, the machine was seen to reset without a word and a guest to end in the middle.
boot() {
  local result=$work/result console=$logs/kvm-console-$1.log status p f _
  value() { sed -n "s/^$1 //p" "$result" | tr -d '\r' | tail -n1; }
  rm -f "$result"
  timeout --signal=KILL "$limit" qemu-system-x86_64 -M q35 -accel tcg,thread=multi,tb-size=1024 \
    -cpu "max,erms=off,fsrm=off,fzrm=off,fsrs=off$2" -smp 1 -m 4096 \
    -nodefaults -no-user-config -display none -no-reboot -monitor none \
    -serial stdio -serial "file:$result" \
    -kernel .cache/guest/vmlinuz -initrd "$work/initramfs.cpio" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable tsc_early_khz=$khz $3" \
    -drive "file=$root,if=virtio,format=raw,snapshot=on,cache=unsafe" \
    -drive "file=$work/payload.ext4,if=virtio,format=raw,snapshot=on,cache=unsafe" \
    -drive "file=.cache/guest/modules.ext4,if=virtio,format=raw,readonly=on" \
    -drive "file=$work/exchange.ext4,if=virtio,format=raw,cache=unsafe" \
    </dev/null 2>&1 > >(tee "$console") &
  machine=$!
  wait "$machine"
  status=$?
  machine=
  echo "inside ($1): QEMU $(value qemu | sed 's/.*version //'), kernel $(value kernel), Node $(value node); up after $(value booted) s, tests until $(value took) s"
  if read -r p f _ <<<"$(value counts)" && [ -n "${f:-}" ]; then
    passed=$((passed + p)) failed=$((failed + f))
  else
    bad "no result from inside (QEMU ended with $status, the machine said '$(value finished)'); its console: $console"
  fi
}

boot first '' ''
# The second has another processor of the same vendor: what was saved in the first moves to it.
case "${SANDLOT_KVM_SHELL:-} $*" in
  ' ' | *move*) boot second ',avx2=off,model-id=Another processor' sandlot.second ;;
esac

# All else was in the machine.
if ps -eo args= | grep -F "$work" | grep -vF grep; then bad "left on the host: see above"; else ok "nothing left"; fi
end

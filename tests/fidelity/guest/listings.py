"""`listings.py ID`: long lists of what a machine shows, a line for each fact, sorted; the comparison is by line.

What changes from boot to boot or follows from the size of memory is left out or written as `~`.
"""

import grp
import os
import pwd
import re
import stat
import sys


def read(path):
    with open(path, "rb") as file:
        return file.read(65536).decode("utf-8", "replace").strip()


def sysctls():
    """Every readable setting of /proc/sys."""
    # Counters, random values, and what the kernel computes from the size of memory (which differs by a few pages).
    skipped = re.compile(
        r"random/(uuid|boot_id|entropy|.*_secs|poolsize)|fs/(.*-nr|.*state|inode-state|binfmt_misc/)|ns_last_pid|sched_domain|"
        r"kernel/(threads-max|hostname|pty/nr|tainted|random|bootloader|osrelease|version|perf_event_max_sample_rate|firmware_config|ns_last)|net/ipv4/(tcp_mem|udp_mem|tcp_.?mem|ipfrag|tcp_max_(orphans|tw)|tcp_fastopen_key)|"
        r"net/(ipv4|ipv6)/(conf|neigh)/|net/netfilter|net/nf_conntrack|net/(sctp|mptcp|bridge|tipc|rds|mpls|smc|iw_cm|rdma|vsock|sunrpc)|sunrpc|net/ipv4/vs|dev/(cdrom|raid|parport|hpet)|"
        r"vm/(min_free|lowmem|user_reserve|admin_reserve|stat_refresh|mmap_rnd|nr_)|user/max_|kernel/(keys/gc|sem|shm|msgmni|cad_pid|usermodehelper)|fs/(file-max|epoll|inotify/max_user_instances|nfs|xfs|mqueue/queues|aio|fuse)|net/core/(optmem|netdev_rss)|net/ipv4/inet_peer_threshold"
    )
    for folder, folders, files in os.walk("/proc/sys"):
        folders.sort()
        for name in files:
            path = os.path.join(folder, name)
            if skipped.search(path[len("/proc/sys/"):]):
                continue
            try:
                yield "%s = %s" % (path[len("/proc/sys/"):].replace("/", "."), " ".join(read(path).split()))
            except OSError:
                pass


def interface_sysctls():
    """Settings of the interfaces `all`, `default`, `lo` and `eth0`."""
    for family in ("ipv4", "ipv6"):
        for kind in ("conf", "neigh"):
            for interface in ("all", "default", "lo", "eth0"):
                folder = f"/proc/sys/net/{family}/{kind}/{interface}"
                for name in sorted(os.listdir(folder) if os.path.isdir(folder) else []):
                    if name in ("stable_secret", "retrans_time", "retrans_time_ms"):
                        continue
                    try:
                        yield "net.%s.%s.%s.%s = %s" % (family, kind, interface, name, " ".join(read(f"{folder}/{name}").split()))
                    except OSError:
                        pass


def mounts():
    """Type and options of every mount."""
    for line in read("/proc/self/mountinfo").splitlines():
        head, tail = line.split(" - ")
        fields = head.split()
        options = ",".join(sorted(set(fields[5].split(",")) | set(tail.split()[2].split(","))))
        options = re.sub(r"(pipe_ino|fd|pgrp)=[0-9]+,?", "", re.sub(r"\b(size|nr_inodes)=[0-9]+k?", r"\1=~", options))
        yield f"{fields[4]} {tail.split()[0]} {options}"


def devices():
    """Nodes of /dev with type, number, mode, owner and group."""
    for folder, folders, files in os.walk("/dev"):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/char", "/dev/block", "/dev/disk", "/dev/bus", "/dev/input", "/dev/hugepages")]
        for name in files:
            path = os.path.join(folder, name)
            if name in ("vdb", "vdc", "kvm"):
                # Disks by which the probes came here, and the module disk; and a node that is there or not, as udev has
                # loaded the module for the processor's virtualisation in time or not.
                continue
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                yield f"{path} -> {os.readlink(path)}"
                continue
            # Dynamic minors and disks' numbers depend on the order of drivers.
            major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
            number = f"{major}:{minor}" if major in (1, 4, 5, 7) or (major == 10 and minor < 200) else "~"
            yield f"{path} {'b' if stat.S_ISBLK(found.st_mode) else 'c' if stat.S_ISCHR(found.st_mode) else '?'} {number} {stat.S_IMODE(found.st_mode):o} {owner(found)}"


def owner(found):
    try:
        return f"{pwd.getpwuid(found.st_uid).pw_name}:{grp.getgrgid(found.st_gid).gr_name}"
    except KeyError:
        return f"{found.st_uid}:{found.st_gid}"


def folders_of(paths):
    for path in paths:
        for name in sorted(os.listdir(path) if os.path.isdir(path) else []):
            yield f"{path}/{name}"


def proc_entries():
    """Entries of /proc and of a process."""
    yield from (line for line in folders_of(["/proc"]) if not line[6:].isdigit())
    yield from folders_of(["/proc/self", "/proc/self/ns", "/proc/sys", "/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs", "/proc/net"])


def sys_entries():
    """Entries of /sys that programs look for."""
    yield from folders_of(["/sys", "/sys/kernel", "/sys/fs", "/sys/fs/cgroup", "/sys/kernel/mm", "/sys/kernel/mm/hugepages", "/sys/kernel/security", "/sys/fs/ext4/features", "/sys/class", "/sys/bus", "/sys/firmware", "/sys/power", "/sys/devices/system", "/sys/devices/system/cpu/vulnerabilities"])
    for path in ("/sys/kernel/security/lsm", "/sys/devices/system/cpu/online", "/sys/devices/system/node/online", "/sys/block/vda/queue/rotational", "/sys/block/vda/queue/discard_max_bytes", "/sys/block/vda/ro", "/sys/power/state", "/sys/devices/system/clocksource/clocksource0/available_clocksource", "/sys/kernel/mm/ksm/run", "/sys/module/kernel/parameters/crash_kexec_post_notifiers"):
        try:
            yield f"{path} = {read(path)}"
        except OSError:
            pass


def filesystems():
    """File systems that the kernel knows at the start."""
    return (line.replace("\t", " ").strip() for line in read("/proc/filesystems").splitlines())


def processor():
    """What /proc/cpuinfo and the size of memory say."""
    text = read("/proc/cpuinfo").split("\n\n")[0]
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            yield from ("flag " + flag for flag in value.split())
        elif name.strip() in ("vendor_id", "model name", "cpu family", "cache size", "address sizes", "bugs", "fpu", "cpuid level"):
            yield f"{name.strip()} = {value.strip()}"
    memory = int(re.search(r"MemTotal: *(\d+)", read("/proc/meminfo")).group(1))
    yield f"memory {round(memory / 1024 / 16) * 16} MiB"


def main():
    lists = {
        "sysctls": sysctls, "interface-sysctls": interface_sysctls, "mount-table": mounts, "device-nodes": devices,
        "proc-entries": proc_entries, "sys-entries": sys_entries, "filesystems": filesystems, "processor": processor,
    }
    print("\n".join(sorted(set(lists[sys.argv[1]]()))))


main()

"""Test program: a guest without QEMU. Attaches to the sandbox's tap as QEMU would, and copies frames to a tap in
another namespace, where the kernel plays the guest. `network-lab.ts` runs it.

Usage: guest.py SANDBOX_NETNS_PATH GUEST_NETNS_PATH UID. Each line on stdin is a raw frame in hex that is sent
to the sandbox's tap as it is.
"""
import ctypes, fcntl, os, select, struct, sys

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0002, 0x1000, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def enter(path):
    fd = os.open(path, os.O_RDONLY)
    if libc.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), path)
    os.close(fd)


def attach(netns, name):
    # A tun file belongs to the namespace in which it was opened: enter first.
    enter(netns)
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name, IFF_TAP | IFF_NO_PI))
    return fd


guest = attach(sys.argv[2], b"eth0")
sandbox = attach(sys.argv[1], b"tap0")
print("ready", flush=True)
pending = b""
while True:
    readable, _, _ = select.select([guest, sandbox, 0], [], [])
    for source, target in ((guest, sandbox), (sandbox, guest)):
        if source in readable:
            try:
                os.write(target, os.read(source, 65536))
            except OSError:
                pass  # a full queue or a link that is down: lost, as on a wire
    if 0 in readable:
        part = os.read(0, 65536)
        if not part:
            break
        pending += part
        *lines, pending = pending.split(b"\n")
        for line in lines:
            os.write(sandbox, bytes.fromhex(line.decode()))
        print("sent", len(lines), flush=True)

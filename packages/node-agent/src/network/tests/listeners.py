"""Test program: services that sandboxes must not reach. Usage: listeners.py ADDRESS:PORT ... ; prints "hit" with
the listener for every TCP connection and UDP packet that gets through.
"""
import socket, sys, threading


def tcp(address, port):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(50)
    opened.release()
    while True:
        c, peer = s.accept()
        print("hit tcp", address, port, peer[0], flush=True)
        c.sendall(b"secret\n")
        c.close()


def udp(address, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, port))
    opened.release()
    while True:
        data, peer = s.recvfrom(2000)
        print("hit udp", address, port, peer[0], flush=True)
        s.sendto(b"secret", peer)


opened = threading.Semaphore(0)
for where in sys.argv[1:]:
    address, port = where.split(":")
    for serve in (tcp, udp):
        threading.Thread(target=serve, args=(address, int(port)), daemon=True).start()
for _ in range(2 * len(sys.argv[1:])):
    opened.acquire()
print("ready", flush=True)
sys.stdin.read()

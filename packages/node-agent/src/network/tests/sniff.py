"""Test program: prints every IPv4 frame that arrives at a link of this network namespace, as hex. Usage: sniff.py LINK."""
import socket, sys

ETH_P_ALL = 3
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
s.bind((sys.argv[1], 0))
print("ready", flush=True)
while True:
    frame, (_, _, kind, _, _) = s.recvfrom(65536)
    if kind != socket.PACKET_OUTGOING:
        print(frame.hex(), flush=True)

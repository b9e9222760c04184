"""Writes every frame that passes this machine's `eth0`, in both directions, to a file; argument: the file."""

import socket
import sys

ALL_PROTOCOLS = 3
BUFFER_BYTES = 64 << 20
with (
    open(sys.argv[1], "wb", buffering=0) as file,
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as wire,
):
    wire.setsockopt(socket.SOL_SOCKET, 33, BUFFER_BYTES)  # SO_RCVBUFFORCE: nothing is lost on a busy computer
    wire.bind(("eth0", 0))
    print("ready", flush=True)
    while True:
        file.write(wire.recv(65_536))

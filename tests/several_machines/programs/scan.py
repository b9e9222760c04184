"""Connects to every TCP port of a machine; argument: its address. Prints those that accept, as JSON."""

import json
import select
import socket
import sys

SECONDS = 20
BATCH = 500


def accepting(host: str, ports: range) -> list[int]:
    poll, streams = select.poll(), {}
    for port in ports:
        stream = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        stream.setblocking(False)
        stream.connect_ex((host, port))
        streams[stream.fileno()] = (port, stream)
        poll.register(stream, select.POLLOUT)
    found, waiting = [], set(streams)
    while waiting:
        ready = poll.poll(SECONDS * 1000)
        assert ready, f"{len(waiting)} ports of {host} neither accept nor refuse"
        for descriptor, _ in ready:
            port, stream = streams[descriptor]
            poll.unregister(descriptor)
            waiting.remove(descriptor)
            if stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                found.append(port)
    for _, stream in streams.values():
        stream.close()
    return found


print(
    json.dumps(
        [
            port
            for first in range(1, 65536, BATCH)
            for port in accepting(sys.argv[1], range(first, min(first + BATCH, 65536)))
        ]
    )
)

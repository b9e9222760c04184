"""Disturbs open ports from outside: `stranger.py SEED COUNT FILE ADDRESS:PORT …` sends so many malformed first messages to each.

FILE holds what was seen on the wire, one hexadecimal message a line; it is sent again as it is. Prints what was answered, by port.
"""

import json
import random
import socket
import sys
from contextlib import suppress
from pathlib import Path

seed, count, seen, *targets = sys.argv[1:]
draw = random.Random(int(seed))
replayed = [bytes.fromhex(line) for line in Path(seen).read_text().split()] or [b""]
HEADS = [
    b'{"say":"hello","proof":""}\n', b'{"say":"watch","node":"x"}\n', b'{"say":"leave","failure":"x"}\n', b"[" * 2000, b"\0" * 8,
    b"\xff" * 64, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\xff\0\0\0\0\0\0\0\x01\x7f\x03", b"",
]  # fmt: skip


def message() -> bytes:
    kind = draw.randrange(3)
    if kind == 0:
        return draw.choice(replayed)
    return draw.choice(HEADS) + draw.randbytes(draw.choice([0, 1, 7, 100, 5000]) if kind == 1 else 0)


answers: dict[str, set[str]] = {}
kept = []
for target in targets:
    host, _, port = target.rpartition(":")
    for _ in range(int(count)):
        with suppress(OSError):
            stream = socket.create_connection((host, int(port)), timeout=5)
            stream.settimeout(0.02)
            kept.append(stream)  # half of a handshake stays open
            with suppress(TimeoutError):
                stream.sendall(message())
                answer = stream.recv(200)
                with suppress(ValueError):
                    answers.setdefault(target, set()).add(json.loads(answer.partition(b"\n")[0])["say"])
            if len(kept) > 100:
                kept.pop(0).close()
print(json.dumps({target: sorted(said) for target, said in answers.items() if said}))

"""A remote shell between machines that share a folder, for `mpirun`: nothing but this Python is needed.

``remote_shell.py serve FOLDER`` runs on each machine; ``FOLDER/shell HOST COMMAND …``, which it writes, runs a command there with the
caller's standard input and output, and ends with its exit code. HOST is a name or an address of the machine. A socket in the
file system leads from one network to another, and takes open files along.
"""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

_FILES = 3
_COMMAND_BYTES = 65_536


def _run(stream: socket.socket) -> None:
    with stream:
        command, files, *_ = socket.recv_fds(stream, _COMMAND_BYTES, _FILES)
        try:
            done = subprocess.run(["sh", "-c", command.decode()], stdin=files[0], stdout=files[1], stderr=files[2])
        finally:
            for file in files:
                os.close(file)
        stream.sendall(bytes([done.returncode % 256]))


def serve(folder: Path) -> None:
    own = folder / socket.gethostname()
    shell = folder / "shell"
    shell.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} call {folder} "$@"\n')
    shell.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(own))
        listener.listen()
        print("ready", flush=True)
        while True:
            threading.Thread(target=_run, args=(listener.accept()[0],)).start()


def call(folder: Path, host: str, command: str) -> int:
    (address,) = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(folder / socket.gethostbyaddr(address)[0]))
        socket.send_fds(stream, [command.encode()], [0, 1, 2])
        return stream.recv(1)[0]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", folder]:
            serve(Path(folder))
        case ["call", folder, host, *words]:
            sys.exit(call(Path(folder), host, " ".join(words)))

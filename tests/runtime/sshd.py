"""An sshd on loopback, for one test, that lets this user in by a key of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin")


@dataclass(frozen=True)
class Board:
    """device, ssh: as --device and --ssh take them. home: where the board's user keeps files."""

    device: str
    ssh: str
    home: Path


@contextmanager
def board(folder: Path) -> Iterator[Board]:
    """Runs sshd until the block ends."""
    assert SSHD
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    authorized = folder / "authorized_keys"
    shutil.copy(folder / "user.pub", authorized)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = folder / "home"
    home.mkdir()
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\n"
        f"AuthorizedKeysFile {authorized}\nPidFile {folder / 'pid'}\nStrictModes no\n"
        f"UsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        f"SetEnv XDG_CACHE_HOME={home} PATH={os.environ['PATH']}\n"
    )
    if os.geteuid() == 0:
        # Where sshd of Debian separates its privileges.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    server = subprocess.Popen(
        [SSHD, "-D", "-e", "-f", str(config)], stderr=(folder / "log").open("w")
    )
    try:
        _wait(port, server, folder / "log")
        ssh = (
            f"ssh -F /dev/null -i {folder / 'user'} -o IdentitiesOnly=yes "
            f"-o StrictHostKeyChecking=no -o UserKnownHostsFile={folder / 'known'}"
        )
        yield Board(f"ssh://{getpass.getuser()}@127.0.0.1:{port}", ssh, home)
    finally:
        server.terminate()
        server.wait()


def _wait(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"sshd does not listen: {log.read_text()}")

"""The device backend end to end: an sshd on loopback, and in the board's place the simulator, or
torq.runtime's own runner on a CPU. No figure of a board is meant by any of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from runtime import session
from runtime.backends.device import DeviceBackend, command
from runtime.backends.iree_cpu import IreeBackend
from runtime.backends.simulator import SimulatorBackend
from runtime.bundle import Bundle
from runtime.decoder import Decoder
from runtime.errors import RunError
from runtime.session import Conversation
from tests.runtime.sshd import SSHD, Board, board
from tests.runtime.toy_bundle import toy_file
from tests.torq.tools import torq_tools

TOKENS = [2, 17, 200, 33, 101, 5, 77]
SIMULATOR = f"simulator:{torq_tools().folder}"
needs_sshd = pytest.mark.skipif(SSHD is None, reason="no sshd: apt install openssh-server")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(toy_file("toy_torq"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python for the board, with numpy, IREE's runtime and torq.runtime."""
    script = tmp_path_factory.mktemp("python") / "python3"
    paths = ":".join(path for path in sys.path if path)
    script.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with board(tmp_path_factory.mktemp("board")) as running:
        yield running


def connect(bundle: Bundle, board: Board, engine: str, python: str) -> DeviceBackend:
    return DeviceBackend.connect(bundle, board.device, board.ssh, engine, python)


def local(bundle: Bundle, engine: str, python: str) -> DeviceBackend:
    return DeviceBackend.connect(bundle, "local:", "ssh", engine, python)


@needs_sshd
def test_over_ssh_the_simulator_gives_what_it_gives_here(
    bundle: Bundle, loopback: Board, python: str
) -> None:
    far = Decoder(bundle, connect(bundle, loopback, SIMULATOR, python))
    near = Decoder(bundle, SimulatorBackend(bundle, torq_tools()))

    for token in TOKENS:
        found, wanted = far.feed(token), near.feed(token)
        np.testing.assert_array_equal(found.logits, wanted.logits)
        np.testing.assert_array_equal(found.hidden, wanted.hidden)
    for name, value in near.backend.cache.values.items():
        np.testing.assert_array_equal(far.backend.cache.values[name], value)
    far.backend.close()


@needs_sshd
def test_the_program_is_sent_once(bundle: Bundle, loopback: Board, python: str) -> None:
    folder = loopback.home / "torq-decoder"
    connect(bundle, loopback, SIMULATOR, python).close()
    digest = bundle.manifest.get("digests", dict)["model.vmfb"]
    sent = folder / digest
    before = sent.stat().st_mtime_ns

    connect(bundle, loopback, SIMULATOR, python).close()

    assert sent.read_bytes() == (bundle.folder / "model.vmfb").read_bytes()
    assert sent.stat().st_mtime_ns == before
    sent.write_bytes(b"half a file")
    connect(bundle, loopback, SIMULATOR, python).close()
    assert sent.read_bytes() == (bundle.folder / "model.vmfb").read_bytes()
    assert [path.name for path in folder.iterdir() if path.name.startswith("partial")] == []


def test_torq_runtimes_runner_keeps_the_cache_in_its_buffers(
    bundle: Bundle, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    far = Decoder(bundle, local(bundle, "cpu", python))
    near = Decoder(bundle, IreeBackend(bundle))

    for token in [*TOKENS, 9, 31, 64]:
        np.testing.assert_array_equal(far.feed(token).logits, near.feed(token).logits)
    far.backend.close()


def test_a_restored_session_is_filled_into_the_board(
    bundle: Bundle, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    near = Decoder(bundle, IreeBackend(bundle))
    for token in TOKENS:
        near.feed(token)
    session.save(tmp_path / "s.npz", near, Conversation())
    far = Decoder(bundle, local(bundle, "cpu", python))

    session.restore(tmp_path / "s.npz", far)

    np.testing.assert_array_equal(far.feed(9).logits, near.feed(9).logits)
    far.backend.close()


def test_a_board_that_is_lost_amid_a_conversation_leaves_a_session_that_goes_on(
    bundle: Bundle, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    far = Decoder(bundle, local(bundle, "cpu", python))
    near = Decoder(bundle, IreeBackend(bundle))
    for token in TOKENS:
        far.feed(token)
        near.feed(token)
    assert isinstance(far.backend, DeviceBackend)
    os.kill(far.backend.process, signal.SIGKILL)

    with pytest.raises(RunError, match=r"local:: the board .* was lost \(status -9\)"):
        far.feed(9)
    session.save(tmp_path / "s.npz", far, Conversation())
    again = Decoder(bundle, local(bundle, "cpu", python))
    session.restore(tmp_path / "s.npz", again)

    assert again.tokens == TOKENS
    np.testing.assert_array_equal(again.feed(9).logits, near.feed(9).logits)
    again.backend.close()


@needs_sshd
def test_a_key_that_is_refused_is_ssh_s_own_words(
    bundle: Bundle, loopback: Board, python: str
) -> None:
    ssh = loopback.ssh.replace("/user ", "/host ")

    with pytest.raises(RunError, match=r"cannot be reached.*status 255.*Permission denied"):
        DeviceBackend.connect(bundle, loopback.device, ssh, "torq", python)


@pytest.mark.parametrize(
    ("python", "words"),
    [("/no/python", "cannot be started"), ("/bin/false", r"status 1\): it said nothing")],
)
def test_a_board_without_python_is_named(bundle: Bundle, python: str, words: str) -> None:
    with pytest.raises(RunError, match=words):
        local(bundle, "torq", python)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh: apt install openssh-client")
def test_a_board_that_is_not_there_is_named(bundle: Bundle) -> None:
    with pytest.raises(RunError, match=r"ssh://127.0.0.1:1: .* cannot be reached.*refused"):
        DeviceBackend.connect(bundle, "ssh://127.0.0.1:1", "ssh -F /dev/null", "torq", "python3")


def test_a_program_that_cannot_run_there_is_an_error_not_a_hang(
    bundle: Bundle, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    # No machine of these tests has the NPU's driver.
    with pytest.raises(RunError, match="local:: load: "):
        local(bundle, "torq", python)
    backend = local(bundle, f"simulator:{tmp_path}", python)
    with pytest.raises(RunError, match="local:: step: "):
        backend.step(bundle.embedding.row(2), 0)


def test_a_board_without_room_is_an_error_and_nothing_half_written(
    bundle: Bundle, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torq-decoder").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(RunError, match="local:: put: FileExistsError"):
        local(bundle, "cpu", python)


@pytest.mark.parametrize(
    "device", ["board", "ssh://", "http://board", "ssh://board/path", "ssh://b:x", "local:x", ""]
)
def test_a_device_that_is_none_is_named(device: str) -> None:
    with pytest.raises(RunError, match=r"expected ssh://\[user@\]host\[:port\], or local:"):
        command(device, "ssh", "python3", 1)


def test_an_address_is_no_option_of_ssh() -> None:
    words = command("ssh://-oProxyCommand=evil@host", "ssh -v", "py thon", 5)

    assert words[:2] == ["ssh", "-v"]
    assert words[words.index("--") + 1].endswith("@host")
    assert words[-1].startswith("'py thon' -u -c ")


@needs_sshd
def test_sshd_was_really_used(loopback: Board) -> None:
    port = loopback.device.rsplit(":", 1)[1]
    host = loopback.device.removeprefix("ssh://").rsplit(":", 1)[0]
    done = subprocess.run(
        [*loopback.ssh.split(), "-p", port, host, "printenv SSH_CONNECTION"],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split()[-1] == port

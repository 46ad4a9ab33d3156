"""The flags that every program of the runtime shares, and what they open."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from absl import app, flags

from runtime.backends.backend import Backend
from runtime.bundle import Bundle
from runtime.decoder import Decoder
from runtime.errors import RunError
from runtime.sampling import Sampling

_BUNDLE = flags.DEFINE_string(
    "bundle", "", "Folder of a bundle: bazel-bin/export/NAME, which //export:NAME makes."
)
_BACKEND = flags.DEFINE_enum(
    "backend",
    "iree",
    ["iree", "jax", "sim", "torq"],
    "Where the step runs: this CPU (iree, the exported module), the float32 reference (jax), the "
    "Torq simulator (sim: minutes a token), a board (torq).",
)
_DEVICE = flags.DEFINE_string(
    "device", "", "With --backend=torq: ssh://[user@]host[:port], or local: on the board itself."
)
_SSH = flags.DEFINE_string("ssh", "ssh", "The ssh command, with options if need be.")
_ENGINE = flags.DEFINE_string(
    "board_engine",
    "torq",
    "What runs the program there: torq (the NPU, by torq.runtime), cpu (the CPU program, on an "
    "x86-64 machine), or simulator:FOLDER (torq-run-module of a folder).",
)
_PYTHON = flags.DEFINE_string("board_python", "python3", "The Python there, with torq.runtime.")
_TEMPERATURE = flags.DEFINE_float("temperature", 0.0, "0 takes the most likely token.")
_TOP_K = flags.DEFINE_integer("top_k", 0, "So many most likely tokens stay; 0 for all.")
_TOP_P = flags.DEFINE_float("top_p", 1.0, "The most likely tokens stay that reach this together.")
_MIN_P = flags.DEFINE_float("min_p", 0.0, "Tokens stay with this part of the best probability.")
_PENALTY = flags.DEFINE_float("repetition_penalty", 1.0, "Above 1 makes seen tokens unlikelier.")
_CANDIDATES = flags.DEFINE_integer(
    "candidates",
    -1,
    "So many of a step's best logits are computed again from the head's exact rows; 0 for none, -1 "
    "for the bundle's own number.",
    lower_bound=-1,
)
_SEED = flags.DEFINE_integer("seed", 0, "The same seed gives the same text.")

# Where people are when `bazel run` starts a program elsewhere.
_WORKING_DIRECTORY = "BUILD_WORKING_DIRECTORY"


def run(program: str, main: Callable[[list[str]], int]) -> None:
    """Runs a program; what it cannot use ends it with one line and status 1, Ctrl-C with 130."""

    def guarded(arguments: list[str]) -> int:
        try:
            return main(arguments[1:])
        except RunError as error:
            print(f"{program}: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print(f"\n{program}: interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:
            # Whoever read the output has gone; Python would complain again when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141

    app.run(guarded)


def path(text: str) -> Path:
    """A path as a person means it, from where they are."""
    return Path(os.environ.get(_WORKING_DIRECTORY, ".")) / Path(text).expanduser()


def brought(text: str) -> Path:
    """A path as a person means it, or where there is nothing, what a target brings with it."""
    meant, own = path(text), Path(text)
    return own if own.exists() and not meant.exists() else meant


def open_bundle() -> Bundle:
    """The bundle of --bundle: from where the person is, or what a target brings with it."""
    if not _BUNDLE.value:
        raise RunError("--bundle is missing: the folder that a torq_decoder target makes")
    return Bundle.open(brought(_BUNDLE.value))


def sampling() -> Sampling:
    """What the flags say of sampling."""
    return Sampling(
        temperature=_TEMPERATURE.value,
        top_k=_TOP_K.value,
        top_p=_TOP_P.value,
        min_p=_MIN_P.value,
        repetition_penalty=_PENALTY.value,
        seed=_SEED.value,
    )


@contextmanager
def open_decoder(bundle: Bundle, name: str = "") -> Iterator[Decoder]:
    """A decoder on the named backend, or that of the flags, let go of at the end."""
    backend = _backend(bundle, name or _BACKEND.value)
    try:
        yield Decoder(bundle, backend, None if _CANDIDATES.value < 0 else _CANDIDATES.value)
    finally:
        backend.close()


def _backend(bundle: Bundle, name: str) -> Backend:
    """Backends are imported when they are wanted: JAX alone takes a second."""
    if _DEVICE.value and _BACKEND.value != "torq":
        raise RunError(f"--device={_DEVICE.value} is for --backend=torq, not {_BACKEND.value}")
    if name == "iree":
        from runtime.backends.iree_cpu import IreeBackend

        return IreeBackend(bundle)
    if name == "jax":
        from runtime.backends.jax_reference import JaxBackend

        return JaxBackend(bundle)
    if name == "sim":
        from runtime.backends.simulator import SimulatorBackend
        from third_party.torq.torq_tools import TorqTools

        return SimulatorBackend(bundle, TorqTools.in_runfiles())
    from runtime.backends.device import DeviceBackend

    if not _DEVICE.value:
        raise RunError(
            "--backend=torq wants --device=ssh://[user@]host[:port], or local: on a board"
        )
    return DeviceBackend.connect(bundle, _DEVICE.value, _SSH.value, _ENGINE.value, _PYTHON.value)

"""Sessions: what was saved goes on as if nothing had been, and a broken file is refused whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from runtime import session
from runtime.backends.iree_cpu import IreeBackend
from runtime.backends.jax_reference import JaxBackend
from runtime.backends.simulator import SimulatorBackend
from runtime.bundle import Bundle
from runtime.decoder import Decoder
from runtime.errors import RunError
from runtime.session import Conversation
from tests.runtime.toy_bundle import toy_file
from tests.torq.tools import torq_tools

TOKENS = [2, 17, 200, 33, 101, 5, 77, 150, 9]


def iree(name: str = "toy_torq") -> Decoder:
    bundle = Bundle.open(toy_file(name))
    return Decoder(bundle, IreeBackend(bundle))


@pytest.mark.parametrize("count", [1, 4, 9])
def test_a_restored_conversation_goes_on_bit_for_bit(count: int, tmp_path: Path) -> None:
    first, second = iree(), iree()
    for token in TOKENS[:count]:
        first.feed(token)
    said = Conversation(messages=[{"role": "user", "content": "Grüße ☂"}], random={"a": 1})
    session.save(tmp_path / "s.npz", first, said)

    restored = session.restore(tmp_path / "s.npz", second)

    assert restored == said
    assert second.tokens == TOKENS[:count]
    for token in (31, 64, 7):
        np.testing.assert_array_equal(first.feed(token).logits, second.feed(token).logits)


def test_a_session_goes_from_one_backend_to_another(tmp_path: Path) -> None:
    first = iree()
    bundle = first.bundle
    for token in TOKENS:
        first.feed(token)
    session.save(tmp_path / "s.npz", first, Conversation())
    others = [
        Decoder(bundle, JaxBackend(bundle)),
        Decoder(bundle, SimulatorBackend(bundle, torq_tools())),
    ]
    for other in others:
        session.restore(tmp_path / "s.npz", other)
    wanted = first.feed(31).logits

    np.testing.assert_allclose(others[0].feed(31).logits, wanted, rtol=1e-3, atol=1e-4)
    found = others[1].feed(31).logits
    assert found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted) > 0.999
    # From bf16 and back.
    session.save(tmp_path / "t.npz", others[1], Conversation())
    session.restore(tmp_path / "t.npz", iree())


def _saved(tmp_path: Path) -> Path:
    decoder = iree()
    for token in TOKENS:
        decoder.feed(token)
    path = tmp_path / "s.npz"
    session.save(path, decoder, Conversation())
    return path


@pytest.mark.parametrize("kept", [0, 10, 500, -1, -100])
def test_a_truncated_session_is_refused_and_the_decoder_stays(kept: int, tmp_path: Path) -> None:
    path = _saved(tmp_path)
    path.write_bytes(path.read_bytes()[:kept])
    decoder = iree()
    decoder.feed(3)

    with pytest.raises(RunError, match=r"s.npz: no session, or a broken one"):
        session.restore(path, decoder)
    assert decoder.tokens == [3]


def test_a_session_of_another_context_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"session of another bundle \(toy_torq\)"):
        session.restore(_saved(tmp_path), iree("toy_chat_torq"))


def _rewritten(path: Path, **changes: object) -> Path:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(arrays["meta"].tobytes())
    for name, value in changes.items():
        if name in meta:
            meta[name] = value
        elif value is None:
            del arrays[name.replace("_", ".")]
        else:
            arrays[name.replace("_", ".")] = np.asarray(value)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 7},
        {"format": "zip"},
        {"dtype": "f8"},
        {"tokens": [1] * 17},
        {"tokens": [1]},
        {"l0_k": None},
        {"l0_k": np.zeros((2, 2, 2), np.uint32)},
        {"l1_v": np.array([{"pickled": 1}], object)},
        {"messages": 3},
    ],
)
def test_a_session_with_something_else_in_it_is_refused(
    changes: dict[str, object], tmp_path: Path
) -> None:
    path = _rewritten(_saved(tmp_path), **changes)
    decoder = iree()
    before = {name: value.copy() for name, value in decoder.backend.cache.values.items()}

    with pytest.raises(RunError, match=r"s\.npz"):
        session.restore(path, decoder)
    assert decoder.tokens == []
    for name, value in decoder.backend.cache.values.items():
        np.testing.assert_array_equal(value, before[name])


def test_a_session_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = _saved(tmp_path)
    before = path.read_bytes()
    with pytest.raises(RunError, match="the session cannot be saved"):
        session.save(tmp_path / "no" / "s.npz", iree(), Conversation())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_session_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"none.npz: No such file"):
        session.restore(tmp_path / "none.npz", iree())

"""The Torq release: its version, a canary of one matmul, and how its failures are told."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from export.torq.compiler import compile_module
from tests.torq.flags import TARGET
from tests.torq.matmul import BF16, random_matmul
from tests.torq.tools import torq_tools
from third_party.torq.torq_tools import Output, ToolError, TorqTools
from tools.report.compare import cosine

# Float addition in another order, and a result rounded to bf16 (2^-9 of a value).
MIN_COSINE = 0.99999


def test_the_release_says_what_it_is() -> None:
    # Torq 2.3.0 does not print its own number; this is the LLVM that it was built with.
    assert "LLVM version 22.0.0git" in torq_tools().version()


@pytest.mark.parametrize("zero_point", [False, True])
@pytest.mark.parametrize(
    ("bits", "block", "n"),
    [(8, 32, 64), (8, 16, 64), (8, 32, 63), (8, 32, 1), (4, 32, 64), (4, 16, 64), (4, 32, 2)],
)
def test_canary_one_matmul_compiles_to_one_dispatch_and_equals_numpy(
    bits: int, block: int, n: int, zero_point: bool, tmp_path: Path
) -> None:
    tools, matmul = torq_tools(), random_matmul(bits=bits, block=block, zero_point=zero_point, n=n)
    module = matmul.write(tmp_path / "matmul.mlirbc")
    program = tmp_path / "matmul.vmfb"

    counts = compile_module(module, program, tmp_path / "timeline.csv", tools, TARGET, 300)
    (result,) = tools.simulate(program, [matmul.x], [Output((1, 1, n), BF16)], 300)

    assert counts["dispatches"] == 1
    assert counts["tiles"]["matmul"] >= 1
    assert counts["timeline"]["end"] > 0
    assert cosine(result, matmul.expected) > MIN_COSINE
    error = np.abs(result.astype(np.float64) - matmul.expected)
    assert error.max() < 0.01 * np.abs(matmul.expected).max()


def test_the_same_module_compiles_to_the_same_bytes_wherever_everything_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 17. Without the care that TorqTools takes, one of a few programs comes out."""
    source = random_matmul(k=640, n=512).write(tmp_path / "matmul.mlirbc")
    made = set()
    for depth in range(6):
        folder = tmp_path.joinpath(*["deeper"] * depth, "here")
        folder.mkdir(parents=True)
        links = folder / "tools"
        (temporary := folder / "temporary").mkdir()
        monkeypatch.setenv("TMPDIR", str(temporary))
        shutil.copytree(torq_tools().folder, links, symlinks=False)
        module = Path(shutil.copy(source, folder))
        paths = folder / "matmul.vmfb", folder / "timeline.csv"
        compile_module(module, *paths, TorqTools(links), TARGET, 300)
        made.add(tuple(path.read_bytes() for path in paths))

    assert len(made) == 1


def test_a_failure_has_the_programs_own_words_and_its_command(tmp_path: Path) -> None:
    broken = tmp_path / "broken.mlir"
    broken.write_text("func.func @main() -> tensor<4xf32> { nonsense }")

    with pytest.raises(
        ToolError, match=r"torq-compile ended with status 1:\nmodule:1:38"
    ) as failure:
        torq_tools().compile(broken, tmp_path / "out", TARGET, 60)
    assert f"{TARGET[-1]} {broken} -o {tmp_path / 'out'}" in str(failure.value)
    assert not list(tmp_path.glob("out*"))


def test_a_program_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    module = random_matmul(k=1024, n=1024).write(tmp_path / "matmul.mlirbc")

    with pytest.raises(ToolError, match=r"torq-compile took longer than 0\.01 s"):
        torq_tools().compile(module, tmp_path / "out", TARGET, 0.01)
    assert not list(tmp_path.glob("out*"))


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"nowhere/torq-compile cannot be started"):
        TorqTools(tmp_path / "nowhere").version()


def test_a_result_of_another_size_is_refused(tmp_path: Path) -> None:
    tools, matmul = torq_tools(), random_matmul()
    program = tmp_path / "matmul.vmfb"
    module = matmul.write(tmp_path / "matmul.mlirbc")
    compile_module(module, program, tmp_path / "timeline.csv", tools, TARGET, 300)

    with pytest.raises(ToolError, match="a result of 128 bytes where"):
        tools.simulate(program, [matmul.x], [Output((1, 1, 63), BF16)], 300)

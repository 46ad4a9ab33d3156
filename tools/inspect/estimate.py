"""How large a program will be, and how long its timeline, before it is compiled: an estimate.

The model: what is read by DMA, the packed weights and the caches, at the rate that was measured,
and a share of that more in which DMA waits for matmuls; and for each layer an overhead, with a
little for every score of attention. It is fitted, the largest relative error being least, to what
torq-compile 2.3.0 with the flags of export/torq/flags.bzl said of MEASURED, and `errors` computes
how far off it is there. The unit is the compiler's; it is not calibrated to a board.
"""

from __future__ import annotations

from dataclasses import dataclass

# DMA In of every measured model but the smallest: 5.190 to 5.191 bytes in a unit.
BYTES_PER_UNIT = 5.19
DMA_SHARE = 1.0755
UNITS_PER_LAYER = 82_500
UNITS_PER_SCORE = 12.1
# Of code, descriptors, norms and masks.
PROGRAM_BYTES_PER_LAYER = 161_000


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a step has to do.

    packed, caches: bytes. scores: of attention, heads * past summed over the layers.
    """

    layers: int
    packed: int
    caches: int
    scores: int

    @property
    def program(self) -> int:
        """The estimated size of the program for the NPU, in bytes."""
        return self.packed + self.layers * PROGRAM_BYTES_PER_LAYER

    @property
    def dma(self) -> int:
        """The estimated units in which weights and caches are read."""
        return round((self.packed + self.caches) / BYTES_PER_UNIT)

    @property
    def end(self) -> int:
        """The estimated end of the timeline, in units."""
        return round(
            self.dma * DMA_SHARE + self.layers * UNITS_PER_LAYER + self.scores * UNITS_PER_SCORE
        )


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A program that was compiled: its bytes, and the end of its timeline in units."""

    name: str
    load: Load
    program: int
    end: int


@dataclass(frozen=True, kw_only=True)
class EstimateError:
    """How far an estimate lies above what was measured, as a part of it; negative for below."""

    name: str
    program: float
    end: float


def _measured(
    name: str, layers: int, packed: int, caches: int, scores: int, program: int, end: int
) -> Measurement:
    load = Load(layers=layers, packed=packed, caches=caches, scores=scores)
    return Measurement(name=name, load=load, program=program, end=end)


# The first two are //export:gemma3_270m_torq and //export:smollm2_135m_torq, the last is
# //tests/toy:toy_torq; the others have random weights, in the shapes of SmolLM2 135M, Gemma 3 270M
# and Qwen3 0.6B but for a vocabulary of 4,096 (8,192 for Qwen3).
# fmt: off
MEASURED = (
    _measured("Gemma 3 270M, q4_gptq head, context 1,024",
              18, 201_809_920, 11_010_048, 43_008, 205_096_313, 44_904_699),
    _measured("SmolLM2 135M, Q4_1, context 2,048",
              30, 96_436_224, 47_185_920, 552_960, 99_510_801, 38_572_467),
    _measured("3 layers of SmolLM2, Q4_1, context 256",
              3, 8_110_080, 589_824, 6_912, 8_581_929, 2_223_067),
    _measured("3 layers of SmolLM2, Q8_0, context 2,048",
              3, 13_787_136, 4_718_592, 55_296, 14_278_513, 4_567_636),
    _measured("2 layers of Gemma 3, Q5_0, context 1,024",
              2, 14_622_720, 1_572_864, 6_144, 15_061_721, 3_485_747),
    _measured("2 layers of Qwen3, Q8_0, context 1,024",
              2, 42_336_256, 8_388_608, 32_768, 42_969_713, 10_645_475),
    _measured("a toy of 2 layers, Q8_0, context 16",
              2, 77_696, 2_560, 80, 405_913, 175_608),
)
# fmt: on


def errors() -> list[EstimateError]:
    """How far the estimates are off for each program that was measured."""
    return [
        EstimateError(
            name=found.name,
            program=found.load.program / found.program - 1,
            end=found.load.end / found.end - 1,
        )
        for found in MEASURED
    ]

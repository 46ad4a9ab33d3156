"""The flags of torq-compile 2.3.0 that this workspace builds with, in one place."""

# What every program needs: the target, Torq's own StableHLO pipeline (the plain one makes six
# dispatches of a step), and an error for whatever would fall back to the host CPU.
_TARGET = [
    "--torq-hw=SL2610",
    "--iree-input-type=stablehlo-torq",
    "--torq-disable-host",
]

# One of two conditions for the same bytes from the same module; third_party/torq/torq_tools.py sees
# to the other, which is where things lie in memory. It costs nothing: a whole model takes 104 s with
# threads and 105 s without (measured, 2 cores).
_REPRODUCIBLE = ["--mlir-disable-threading"]

# A real Gemma 3 270M layer with 2,048 rows of the head, on the compiler's timeline: 1,997,807 units
# without these and 1,619,454 with them at past 16; 2,254,003 and 1,836,837 at past 1,024 (measured).
_SCHEDULE = [
    "--torq-prefetch-algorithm=stream-schedule",
    "--torq-dma-in-mtu=10",
    "--torq-dma-out-mtu=10",
    "--torq-prefetch-matmul-tile-budget-percent=60",
]

# exp of bf16 by two tables of the NPU; without this it is software on the RISC-V core, where a
# layer's 4,096 scores at past 1,024 were more than half of its time in the simulator (measured).
_OPERATIONS = ["--torq-enable-general-exp"]

TORQ_FLAGS = _TARGET + _REPRODUCIBLE + _SCHEDULE + _OPERATIONS

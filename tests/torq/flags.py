"""Flags of torq-compile for the tests: the build's target, without its schedule."""

TARGET = [
    "--torq-hw=SL2610",
    "--iree-input-type=stablehlo-torq",
    "--torq-disable-host",
    "--mlir-disable-threading",
    "--torq-enable-general-exp",
]

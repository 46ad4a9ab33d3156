"""The flags of iree-compile 3.11 that a bundle's CPU program is built with, in one place."""

CPU_TARGET = "x86-64-v3"

# Evaluating constants at compile time would unpack the weights.
CPU_FLAGS = [
    "--iree-input-type=auto",
    "--iree-hal-target-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=" + CPU_TARGET,
    "--iree-opt-const-eval=false",
    # Names of temporary files, which differ from build to build.
    "--iree-llvmcpu-debug-symbols=false",
    "--iree-vm-bytecode-module-strip-source-map",
]

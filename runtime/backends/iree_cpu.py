"""The step on this machine's CPU: the bundle's CPU program in IREE's runtime."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from iree import runtime as iree_runtime

from runtime.backends.backend import HostBackend
from runtime.bundle import Bundle
from runtime.errors import RunError

# What x86-64-v3 means, by the names of /proc/cpuinfo: the x86-64 psABI.
_FLAGS = {"x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"}}
# DLPack's kDLCPU.
_DLPACK_CPU = 1


class IreeBackend(HostBackend):
    """Loads the program by mapping it into memory: it starts in milliseconds."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle, bundle.program("cpu"))
        _check_cpu(self.program.target)
        self._device = iree_runtime.get_device("local-task")
        instance = iree_runtime.VmInstance()
        with self.program.path.open("rb") as file:
            # VmModule.mmap would open the file for writing.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        module = iree_runtime.VmModule.wrap_buffer(instance, mapped)
        hal = iree_runtime.create_hal_module(instance, self._device)
        self._context = iree_runtime.VmContext(instance, [hal, module])
        self._step = module.lookup_function(self.program.function)

    def _call(self, arguments: list[np.ndarray]) -> list[np.ndarray]:
        given = iree_runtime.VmVariantList(len(arguments))
        for value in arguments:
            given.push_ref(self._buffer(value))
        results = iree_runtime.VmVariantList(len(self.bundle.outputs))
        self._context.invoke(self._step, given, results)
        return [
            self._array(results.get_as_object(index, iree_runtime.HalBufferView))
            for index in range(len(self.bundle.outputs))
        ]

    def _buffer(self, value: np.ndarray) -> Any:
        return self._device.allocator.allocate_buffer_copy(
            memory_type=iree_runtime.MemoryType.DEVICE_LOCAL,
            allowed_usage=iree_runtime.BufferUsage.DEFAULT,
            device=self._device,
            buffer=np.ascontiguousarray(value),
            element_type=iree_runtime.HalElementType.FLOAT_32,
        )

    def _array(self, view: Any) -> np.ndarray:
        """A copy of a result. DeviceArray.to_host of IREE 3.11 never frees what it maps."""
        capsule = self._device.create_dlpack_capsule(view, _DLPACK_CPU, 0)
        return np.from_dlpack(_Shared(capsule)).copy()  # type: ignore[arg-type]

    def close(self) -> None:
        del self._step, self._context, self._device


@dataclass(frozen=True)
class _Shared:
    """What numpy asks for a DLPack capsule."""

    capsule: Any

    def __dlpack__(self, **_: Mapping[str, Any]) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0


def _check_cpu(target: str) -> None:
    """Raises RunError where this CPU lacks what the program was compiled for."""
    wanted = _FLAGS.get(target)
    if wanted is None:
        raise RunError(f"the bundle's CPU program is for {target!r}, which is unknown here")
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    if missing := wanted - found:
        raise RunError(
            f"the bundle's CPU program is for {target}, this CPU has no "
            f"{', '.join(sorted(missing))}; use --backend=jax"
        )

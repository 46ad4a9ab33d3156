"""The reference: the bundle's StableHLO step, float32, compiled by XLA for this CPU."""

from __future__ import annotations

import jax
import numpy as np
from jaxlib import xla_client

from runtime.backends.backend import HostBackend
from runtime.bundle import Bundle

# Never looks for an accelerator.
jax.config.update("jax_platforms", "cpu")


class JaxBackend(HostBackend):
    """Compiles the module when it starts: seconds for a whole model."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle, bundle.program("stablehlo"))
        options = xla_client.CompileOptions()
        # Folding would unpack every weight while compiling: minutes, and gigabytes.
        options.env_option_overrides = [("xla_disable_hlo_passes", "constant_folding")]
        device = jax.devices("cpu")[0]
        self._step = device.client.compile_and_load(
            self.program.path.read_bytes(), xla_client.DeviceList((device,)), options
        )

    def _call(self, arguments: list[np.ndarray]) -> list[np.ndarray]:
        results = self._step.execute([jax.device_put(value) for value in arguments])
        return [np.asarray(result) for result in results]

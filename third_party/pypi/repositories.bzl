"""The index of locked wheels."""

load("//third_party/pypi:wheels.bzl", "wheel_index")

def pypi_repositories():
    """Declares @pypi; its own `wheel_repositories()` then declares @pypi_NAME for every wheel."""
    wheel_index(
        name = "pypi",
        requirements = "//third_party/pypi:requirements.txt",
    )

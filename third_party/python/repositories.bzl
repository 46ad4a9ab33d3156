"""The Python toolchain's repository."""

load("//third_party/python:host_python.bzl", "host_python")

# buildifier: disable=unnamed-macro
def python_repositories():
    """Declares @host_python and registers its toolchain."""
    host_python(name = "host_python")
    native.register_toolchains("@host_python//:toolchain")

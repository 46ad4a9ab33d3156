"""The Python that actions get: the locked wheels, and nothing else of the host's."""

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

LOCKED = {"jax": "0.10.2", "numpy": "2.4.6", "gguf": "0.19.0", "ml-dtypes": "0.7.0"}


@pytest.mark.parametrize(("package", "version"), LOCKED.items())
def test_a_wheel_is_the_locked_one_and_lies_in_the_runfiles(package: str, version: str) -> None:
    distribution = importlib.metadata.distribution(package)

    assert distribution.version == version
    assert os.environ["TEST_SRCDIR"] in str(distribution.locate_file(""))


def test_no_site_packages_of_the_host_are_on_the_path() -> None:
    foreign = [
        entry for entry in sys.path if {"site-packages", "dist-packages"} & set(Path(entry).parts)
    ]

    assert not foreign


def test_pip_which_every_host_has_cannot_be_imported() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pip")


def test_no_bytecode_is_written() -> None:
    assert sys.dont_write_bytecode

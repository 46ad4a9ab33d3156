"""Runs pytest on the files that a `pytest_test` target names, the way Bazel wants it run."""

import os
import sys
from pathlib import Path

import pytest


class _Collected:
    """Fails the run where a named file gives no test: it would pass by testing nothing."""

    def __init__(self, files: list[str]) -> None:
        self.files = {Path(file).name for file in files}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if empty := self.files - {item.path.name for item in items}:
            raise pytest.UsageError(f"no test collected from {', '.join(sorted(empty))}")


def main() -> int:
    arguments = sys.argv[1:]
    files = [argument for argument in arguments if argument.endswith(".py")]
    options = ["-p", "no:cacheprovider", "--strict-markers", "-ra", "-q", "--import-mode=importlib"]
    if report := os.environ.get("XML_OUTPUT_FILE"):
        options.append(f"--junitxml={report}")
    if scratch := os.environ.get("TEST_TMPDIR"):
        options.append(f"--basetemp={scratch}/pytest")
    if pattern := os.environ.get("TESTBRIDGE_TEST_ONLY"):
        options += ["-k", pattern]
    return pytest.main(options + arguments, plugins=[_Collected(files)])


if __name__ == "__main__":
    sys.exit(main())

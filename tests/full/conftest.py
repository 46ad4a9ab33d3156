"""The bundle and the report that a test target names."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bundle", type=Path)
    parser.addoption("--report", type=Path)

"""The type of what JSON holds: text, numbers, true, false, null, lists and objects of these."""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = Any

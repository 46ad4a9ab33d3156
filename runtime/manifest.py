"""Reads fields of a manifest; one that is missing or of a wrong type is named by its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, TypeVar

from runtime.errors import RunError

Field = TypeVar("Field")


class Manifest:
    """The JSON of a manifest. Places are written `embedding/scale`."""

    def __init__(self, path: Path, content: Any) -> None:
        self.path, self._content = path, content

    def get(self, place: str, kind: type[Field]) -> Field:
        """The field at a place; RunError where it is not there or no `kind`."""
        value = self._content
        for name in place.split("/"):
            if not isinstance(value, dict) or name not in value:
                raise RunError(f"{self.path}: no field {place}; build the bundle again")
            value = value[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise RunError(
                f"{self.path}: {place} is {type(value).__name__}, {kind.__name__} was expected; "
                "build the bundle again"
            )
        return value

    def number(self, place: str) -> float:
        """A field that is an integer or a float, as float."""
        value: object = self.get(place, object)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RunError(f"{self.path}: {place} is no number; build the bundle again")
        return float(value)

    def records(self, place: str, kind: type) -> list[dict[str, Any]]:
        """A list of objects that have the fields of a dataclass, and no others."""
        wanted = {field.name for field in dataclasses.fields(kind)}
        found: list[Any] = self.get(place, list)
        for index, record in enumerate(found):
            if not isinstance(record, dict) or set(record) != wanted:
                raise RunError(
                    f"{self.path}: {place}/{index} is not an object of {', '.join(sorted(wanted))}"
                )
        return found

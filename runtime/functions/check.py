r"""Whether arguments are what a function declares, by JSON Schema, read as a call is generated.

Three readings differ from the library's own: a pattern's \d, \w and \s mean ASCII, as in
ECMA-262; multipleOf is exact in decimals, so that 0.3 is a multiple of 0.1; and null is allowed
where OpenAPI's `nullable` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

import jsonschema
import jsonschema.protocols
import jsonschema.validators

from runtime.errors import RunError
from runtime.functions.schema import Function
from runtime.functions.values import Json

Validator = jsonschema.protocols.Validator
Rule = Callable[[Validator, Json, Json, Json], Iterator[jsonschema.ValidationError] | None]


def check_arguments(function: Function, arguments: Mapping[str, Json]) -> None:
    """Raises RunError, naming the argument, unless they are what the function declares."""
    closed = {**function.parameters, "additionalProperties": False}
    for error in _VALIDATOR(closed).iter_errors(dict(arguments)):
        place = ".".join(map(str, [function.name, *error.absolute_path]))
        raise RunError(f"{place}: {error.message}")


def fits(value: Json, schema: Json) -> bool:
    """Whether a JSON value is one that the schema allows."""
    return bool(_VALIDATOR(schema).is_valid(value))


def is_multiple(number: float, step: float) -> bool:
    """Whether a number is a multiple of a step, both taken as the decimals that they show."""
    return (Fraction(str(number)) / Fraction(str(step))).denominator == 1


def _pattern(
    _validator: Validator, pattern: str, value: Json, _schema: Json
) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, str) and not re.search(pattern, value, re.ASCII):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _multiple_of(
    validator: Validator, step: float, value: Json, _schema: Json
) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(value, "number") and not is_multiple(value, step):
        yield jsonschema.ValidationError(f"{value!r} is not a multiple of {step}")


def _unless_null(rule: Rule) -> Rule:
    def checked(
        validator: Validator, keyword: Json, value: Json, schema: Json
    ) -> Iterator[jsonschema.ValidationError]:
        if value is None and schema.get("nullable") is True:
            return iter(())
        return rule(validator, keyword, value, schema) or iter(())

    return checked


_BASE = jsonschema.Draft202012Validator
_NULLABLE = ("type", "enum", "const", "anyOf", "oneOf")
_VALIDATOR = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    _BASE,
    {
        **{keyword: _unless_null(_BASE.VALIDATORS[keyword]) for keyword in _NULLABLE},
        "pattern": _pattern,
        "multipleOf": _multiple_of,
    },
)

"""Members of an object and items of a set, as rules: each at most once, and how many at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Rule = Callable[[str], str]


def member_rules(
    pairs: Sequence[tuple[str, bool]], least: int, most: int | None, rule: Rule
) -> str | None:
    """Members in their order, commas between them; None where so few or many cannot be.

    pairs: each member's expression, and whether it must be there.
    rule: makes a rule of an expression and gives its name.
    """
    # What follows depends on how many came before only as far as a bound does, and the comma.
    cap = max(1, least) if most is None else len(pairs)
    limit = len(pairs) if most is None else most
    rest: list[str | None] = ["" if count >= least else None for count in range(cap + 1)]
    for index in reversed(range(len(pairs))):
        body, required = pairs[index]
        counts = range(min(index, cap) + 1)
        rest = [
            _choice(
                f'"," {body}' if count else body,
                rest[min(count + 1, cap)] if count < limit else None,
                None if required else rest[count],
                rule,
            )
            for count in counts
        ]
    return rest[0]


def _choice(body: str, with_it: str | None, without: str | None, rule: Rule) -> str | None:
    if with_it is None:
        return without
    taken = f"{body} {with_it}".strip()
    if without is None:
        return rule(taken)
    return rule(f"{taken} | {without}" if without else f"({taken})?")


def set_rules(items: Sequence[str], least: int, most: int, rule: Rule) -> str:
    """Different items in any order, from `least` to `most` of them, commas between them.

    There is a rule for each set of items that may be left: 2 to the number of items.
    """
    count = len(items)
    rest: dict[int, str] = {}
    for left in range(1 << count):
        taken = count - left.bit_count()
        if taken > most:
            continue
        comma = '"," ' if taken else ""
        more = [
            f"{comma}{items[i]} {rest[left & ~(1 << i)]}".strip()
            for i in range(count)
            if left >> i & 1 and taken < most
        ]
        body = " | ".join(more)
        optional = f"({body})?" if body else ""
        rest[left] = rule(body) if more and taken < least else optional and rule(optional)
    return rest[(1 << count) - 1]

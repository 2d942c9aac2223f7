"""Facts as people read them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sandtable.cli.printing import new_console, new_table

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_MANY = 16


def pretty(text: str) -> str:
    """C_12 with its number below the line."""
    return re.sub(r"_(\d+)", lambda found: found[1].translate(_SUBSCRIPTS), text)


def counted(n: int, what: str) -> str:
    return f"{n:,} {what}" + "s" * (n != 1)


def print_facts(known: Mapping[str, Any]) -> None:
    console = new_console()
    console.print(_heading(known), style="bold")
    lines = {
        "states": f"{_some(known['states'])}, start {known['start']}",
        "tokens": _some(known["tokens"]),
        "labels": _labels(known),
        "semigroup": _semigroup(known),
        "subgroups": _subgroups(known),
        "group": _group(known["group"]),
        "aperiodic": _answer(known["aperiodic"]),
        "solvable": _answer(known["solvable"], known["obstacle"]),
        "holonomy": _levels(known["levels"]),
    }
    for name, text in lines.items():
        if text:
            console.print(f"{name:<10} {text}", soft_wrap=True)
    table = new_table("method", "layers", "why")
    for depth in known["depths"]:
        mark = " *" if depth["method"] == known["auto"] else ""
        table.add_row(depth["method"] + mark, "—" if depth["layers"] is None else str(depth["layers"]), depth["why"])
    star = "* is what auto takes" if known["auto"] else "none can be built"
    console.print(f"\nlayers of a compiled Transformer for {counted(known['length'], 'token')}; {star}:")
    console.print(table)
    for limit in known["limits"]:
        console.print(limit, soft_wrap=True)


def _heading(known: Mapping[str, Any]) -> str:
    return f"{known['name'] or 'automaton'}: {counted(len(known['states']), 'state')}, " + counted(
        len(known["tokens"]), "token"
    )


def _some(names: Sequence[str]) -> str:
    return " ".join(names[:_MANY]) + (f" … ({len(names)})" if len(names) > _MANY else "")


def _labels(known: Mapping[str, Any]) -> str:
    """What is seen of the states, where they are not seen themselves."""
    groups: dict[int, list[str]] = {}
    for state, label in zip(known["states"], known["labels"] or (), strict=False):
        groups.setdefault(label, []).append(state)
    return "; ".join(f"{label} in {_some(groups[label])}" for label in sorted(groups, reverse=True))


def _answer(answer: bool | None, why: str | None = None) -> str:
    return "not known" if answer is None else "yes" if answer else "no" + (f": {pretty(why)}" if why else "")


def _semigroup(known: Mapping[str, Any]) -> str:
    order, listed = known["order"], known["semigroup"]
    if listed is None:
        return "not listed" if order is None else f"{counted(order, 'map')}, not listed"
    kind = "a group" if listed["is_group"] else "with the identity" if listed["has_identity"] else "no identity"
    parts = counted(listed["idempotents"], "idempotent"), counted(listed["d_classes"], "D-class").replace("ss", "sse")
    return f"{counted(order, 'map')} ({kind}), {parts[0]}, {parts[1] if listed['d_classes'] > 1 else '1 D-class'}"


def _subgroups(known: Mapping[str, Any]) -> str:
    if known["semigroup"] is None:
        return ""
    found = [part for part in known["semigroup"]["subgroups"] if part["order"] > 1]
    names = Counter((part["rank"], part["name"]) for part in found)
    texts = [
        f"{pretty(name)} on {rank} points" + f" ({count} times)" * (count > 1) for (rank, name), count in names.items()
    ]
    return "; ".join(texts) or "only trivial ones"


def _group(group: Mapping[str, Any] | None) -> str:
    if group is None:
        return ""
    order = f"order {group['order']:,}"
    texts = [order if group["name"] == order else f"{pretty(group['name'])}, {order}"]
    texts.append(f"derived series {_series(group['derived'])}")
    if group["primes"]:
        texts.append(f"prime series {_series(group['primes'])}")
    if group["composition"] is not None:
        texts.append(f"composition factors {', '.join(map(str, group['composition'])) or 'none'}")
    return "; ".join(texts)


def _series(orders: Iterable[int]) -> str:
    return " ▷ ".join(f"{order:,}" for order in orders)


def _levels(levels: Sequence[Sequence[Mapping[str, Any]]] | None) -> str:
    if levels is None:
        return ""
    texts = []
    for level in levels:
        counts = Counter((part["states"], part["group"]["name"]) for part in level)
        texts.append(" + ".join(f"{count}× " * (count > 1) + _component(*part) for part, count in counts.items()))
    return f"{counted(len(levels), 'level')}: " + " / ".join(_runs(texts)) if levels else "no level: one state"


def _component(states: int, group: str) -> str:
    return f"{states} states" + f" under {pretty(group)}" * (group != "trivial")


def _runs(texts: Sequence[str]) -> list[str]:
    """Equal levels in a row, once."""
    found: list[list[Any]] = []
    for text in texts:
        if found and found[-1][0] == text:
            found[-1][1] += 1
        else:
            found.append([text, 1])
    return [text + f" ({count} levels)" * (count > 1) for text, count in found]


# -- compiled models -------------------------------------------------------------------------------------------------


def print_compiled(known: Mapping[str, Any], where: str) -> None:
    console = new_console()
    console.print(
        f"{where}{known['automaton'] or 'automaton'} by method {known['method']!r}, inputs of up to "
        f"{counted(known['length'], 'token')}, {known['positions']:,} positions, {known['parameters']:,} parameters",
        soft_wrap=True,
    )
    table = new_table("size", "measured", "bound")
    for name, values in known["sizes"].items():
        table.add_row(name.replace("_", " "), _size(values["size"]), _size(values["bound"]))
    console.print(table)


def _size(value: float | None) -> str:
    if value is None:
        return "—"
    if value < 1e9 and value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value < 1e6 else f"{value:.3g}"


def print_verified(found: Mapping[str, Any]) -> None:
    how = "all inputs, from every start state" if found["exhaustive"] else "random, lawful and adversarial, every start"
    print(f"inputs of {counted(found['length'], 'token')}: {found['inputs']:,} ({how})")
    if found["exact"]:
        print("wrong: 0, every state right")
    else:
        first = found["first_wrong"]
        print(
            f"wrong: {found['wrong']:,} inputs ({100 * found['accuracy']:.4g} % of states right); "
            f"first from {first['start']} on {first['input']}"
        )
    print(f"residual: {found['residual']:.1e} from whole numbers, where 0.5 would be an error")
    if found["hard_heads"]:
        print(f"attention: {counted(found['hard_heads'], 'hard head')}, at most {found['softest']:.1e} of it elsewhere")

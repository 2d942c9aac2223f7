"""Pages of the site that are made from the code when it is built, so that they cannot drift: API, claims, errata.

A hook of mkdocs (see `mkdocs.yml`); the pages exist only in the built site.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from types import ModuleType
from typing import Any

ROOMS = ("worlds", "models", "objectives", "training", "theory", "probes", "decoding", "bridges", "lab")


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def pages() -> dict[str, str]:
    """Every generated page, by its path."""
    from sandtable.lab import load, registry

    cards = [registry.card(claim) for claim in load().values()]
    return {
        "reference/api.md": api(),
        "reference/claims.md": claims(cards),
        "reference/errata.md": errata(cards),
        "reference/scales.md": scales(cards),
    }


# -- what people use -------------------------------------------------------------------------------------------------


def api() -> str:
    """One line for every public name, room by room: the first line of its docstring."""
    parts = [
        "# What people use\n\nEvery public name with the first line of its documentation; `help(name)` has the rest. "
        "`st` is `import sandtable as st`.\n"
    ]
    for room in ROOMS:
        module = importlib.import_module(f"sandtable.{room}")
        parts.append(f"## {room}\n\n{_summary(module)}\n\n{_names(module)}")
        parts.extend(
            f"### st.{short}\n\n{_summary(inner)}\n\n{_names(inner)}" for short, inner in _inside(module, room)
        )
    return "\n".join(part for part in parts if part)


def _inside(module: ModuleType, short: str) -> Iterator[tuple[str, ModuleType]]:
    """The packages of a room and the modules that it exports, and those inside them."""
    exported = {name for name in getattr(module, "__all__", ()) if inspect.ismodule(getattr(module, name, None))}
    packages = {part.name for part in pkgutil.iter_modules(getattr(module, "__path__", ())) if part.ispkg}
    for name in sorted(exported | packages):
        inner = importlib.import_module(f"{module.__name__}.{name}")
        if name in exported or set(getattr(inner, "__all__", ())) - set(getattr(module, "__all__", ())):
            yield f"{short}.{name}", inner
            yield from _inside(inner, f"{short}.{name}")


def _names(module: ModuleType) -> str:
    lines = [f"- `{name}{_mark(value)}`: {_summary(value)}" for name, value in _public(module) if _documented(value)]
    return "\n".join(lines) + "\n" if lines else ""


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    if hasattr(module, "__all__"):
        yield from ((name, getattr(module, name)) for name in module.__all__)
        return
    for name, value in vars(module).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__:
            yield name, value


def _documented(value: Any) -> bool:
    return (inspect.isclass(value) or inspect.isroutine(value)) and bool(inspect.getdoc(value))


def _mark(value: Any) -> str:
    return "" if inspect.isclass(value) else "()"


def _summary(value: Any) -> str:
    """The first paragraph of a docstring of a module, its first sentence or line otherwise."""
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    if not inspect.ismodule(value) and inspect.isclass(value) and paragraph.startswith(f"{value.__name__}("):
        return "a record of " + ", ".join(f"`{name}`" for name in getattr(value, "_fields", ())) + "."
    return _plain(paragraph)


def _plain(text: str) -> str:
    """Text that Markdown shows as it stands."""
    pieces = text.split("`")
    for sign in ("\\", "*", "_", "[", "|"):
        pieces[::2] = [piece.replace(sign, f"\\{sign}") for piece in pieces[::2]]
    pieces[::2] = [piece.replace("<", "&lt;") for piece in pieces[::2]]
    return "`".join(pieces)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(cards: Sequence[Mapping[str, Any]]) -> str:
    """Every claim, line by line."""
    rows: Callable[[Mapping[str, Any]], Sequence[str]] = lambda card: (  # noqa: E731
        _anchor(card["id"]) + (" \\*" if card["tour"] else ""),
        _plain(card["statement"]),
        _source(card),
        card["expected"],
        " ".join(card["scales"]),
    )
    parts = [
        f"# All {len(cards)} claims\n\n`sandtable show NAME` says what would refute one; \\* is part of the tour. "
        "What came out is on the page of [results](../results.md) and in the report of your own runs.\n"
    ]
    for line, found in groupby(cards, key=lambda card: card["id"].partition("/")[0]):
        columns = ("claim", "statement", "source", "expected", "scales")
        parts.append(f"## {line}\n\n{_table(columns, map(rows, found))}")
    return "\n".join(parts)


def errata(cards: Sequence[Mapping[str, Any]]) -> str:
    """Printed statements that do not hold, each beside the one that does."""
    known = {card["id"]: card for card in cards}
    wrong = [card for card in cards if card["erratum"]]
    parts = [
        f"# Errata\n\n{len(wrong)} statements that do not hold as printed. Each is a claim expected to be refuted, "
        "beside one that holds on the same measurement; the command judges both. A reading of ours may be the mistake: "
        "the evidence is there to be run.\n"
    ]
    for card in wrong:
        right = known[card["corrected"]]
        parts.append(
            f"## {card['id']}\n\n{_source(card)}\n\n"
            f"- **Printed:** {_plain(card['statement'])}\n- **What is wrong:** {_plain(card['erratum'])}\n"
            f"- **Holds instead** ({_anchor(right['id'])}): {_plain(right['statement'])}\n\n"
            f"```bash\nsandtable verify {card['id']} {right['id']}\n```\n"
        )
    return "\n".join(parts)


def scales(cards: Sequence[Mapping[str, Any]]) -> str:
    """Which claims have no smoke scale, and what makes them long."""
    lacking = [card for card in cards if "smoke" not in card["scales"]]
    head = (
        "# Claims without a smoke scale\n\nA claim has a smoke scale only where about three seconds can decide it, "
        f"controls included: {len(cards) - len(lacking)} of {len(cards)} have one (`sandtable verify --scale smoke`). "
        "The others train networks, draw samples or repeat fits so often that fewer would decide nothing. "
        "`sandtable list --lacks smoke` prints this table; the tests run each of them for a few steps, unjudged.\n\n"
    )

    def row(card: Mapping[str, Any]) -> Sequence[str]:
        counts = ", ".join(f"`{name}={count}`" for name, count in card["work"]["desk"].items())
        return _anchor(card["id"]), str(card["seeds"]["desk"]), counts

    return head + _table(("claim", "seeds", "largest settings at desk scale"), map(row, lacking))


def _anchor(name: str) -> str:
    return f"`{name}`"


def _source(card: Mapping[str, Any]) -> str:
    source = card["source"]
    return _plain(f"{source['authors']} {source['year']}, {source['where']}")


def _table(columns: Sequence[str], rows: Any) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

"""The built-in corpus: English prose from the docstrings of the standard library and of installed packages.

Sources are parsed, never imported or run.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import itertools
import os
import re
import site
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from sandtable.arguments import ArgumentError, nearest
from sandtable.bridges.cleaning import Seen

_SKIPPED = re.compile(
    r"_?tests?|testing|.*_tests?|tests?_.*|conftest|_?vendor(ed)?|third_party|externals?|extern|site-packages|"
    r"dist-packages|idlelib|lib2to3|turtledemo|pydoc_data|ensurepip|__pycache__|pip|setuptools|pkg_resources|sandtable"
)
_FILES = 300  # of a package at most: the largest ones would drown the rest in variations of one text
_LARGEST_SOURCE = 500_000  # bytes: larger sources are mostly tables, and slow to parse
_LEAST, _MOST = 50, 300  # words of a document, where its docstrings allow


def source_files(packages: Sequence[str] | None) -> list[Path]:
    """Source files of the wanted packages, in the order of a hash of their names: every part is a fair sample."""
    tops = {"stdlib": Path(sysconfig.get_paths()["stdlib"])}
    for place in (*(sysconfig.get_paths()[key] for key in ("purelib", "platlib")), *site.getsitepackages()):
        for entry in sorted(Path(place).glob("*")):
            named = entry.stem.isidentifier() and not entry.stem.startswith("_")
            if named and not _SKIPPED.fullmatch(entry.stem) and (entry.is_dir() or entry.suffix == ".py"):
                tops.setdefault(entry.stem, entry)
    if isinstance(packages, str) or (packages is not None and not packages):
        raise ArgumentError(f"packages={packages!r}: must be a list of at least one import name")
    for name in packages or ():
        if name not in tops:
            part = " on its own: it comes with Python, whose modules are together 'stdlib'"
            own = name in sys.stdlib_module_names
            raise ArgumentError(f"packages: {name!r} is not installed{part if own else nearest(name, list(tops))}")
    keyed = []
    for name in dict.fromkeys(packages or tops):
        files = [tops[name]] if tops[name].is_file() else _walk(tops[name])
        labels = ((f"{name}/{file.relative_to(tops[name]).as_posix()}", file) for file in files)
        keyed += sorted((hashlib.blake2b(label.encode()).digest(), file) for label, file in labels)[:_FILES]
    return [file for _, file in sorted(keyed)]


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not _SKIPPED.fullmatch(name)]
        yield from (Path(folder, file) for file in files if file.endswith(".py") and not _SKIPPED.fullmatch(file[:-3]))


def documents(files: Sequence[Path]) -> Iterator[str]:
    """A document is what is written in a class, or about the functions of a module, in parts of 50 to 300 words.

    Paragraphs that came before, in whatever package, are left out.
    """
    seen = Seen()
    for file in files:
        for docstrings in _docstrings(file):
            paragraphs = [text for doc in docstrings for text in prose(doc) if seen.add(text)]
            ends = list(itertools.accumulate(text.count(" ") + 1 for text in paragraphs))
            first = done = 0
            for i in range(1, len(paragraphs)):
                if ends[i] - done > _MOST and ends[i - 1] - done >= _LEAST and ends[-1] - ends[i - 1] >= _LEAST:
                    yield " ".join(paragraphs[first:i])
                    first, done = i, ends[i - 1]
            yield " ".join(paragraphs[first:])


def _docstrings(file: Path) -> list[list[str]]:
    """Docstrings of a source file by class; those of functions, small classes and the module itself together."""
    try:
        source = file.read_bytes()
        with warnings.catch_warnings():  # of odd escapes in the sources of others
            warnings.simplefilter("ignore")
            tree = ast.parse(source if b'"""' in source and len(source) <= _LARGEST_SOURCE else b"")
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    groups = [[ast.get_docstring(tree) or ""]]
    for node in tree.body:
        found = list(_inside(node))
        large = isinstance(node, ast.ClassDef) and sum(len(doc.split()) for doc in found) >= 2 * _LEAST
        groups += [found] if large else []
        groups[0] += [] if large else found
    return groups


def _inside(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield ast.get_docstring(node) or ""
        for child in node.body if isinstance(node, ast.ClassDef) else ():
            yield from _inside(child)


_UNDERLINE = re.compile(r"""([=\-~^*#+"'`_:.])\1{2,}""")
_DROPPED_SECTIONS = {"references", "see also", "methods", "bibliography"}
_TITLES = {"parameters", "returns", "yields", "raises", "notes", "examples", "example", "attributes", "note"}
_KEPT_DIRECTIVES = re.compile(r"\.\. (note|warning|tip|important|caution|hint|attention|admonition|topic)::")
_ITEM = re.compile(  # of a list of parameters, in the styles of numpydoc, Sphinx and Google
    r"[*\w, .\"'/]+ : \S.*|:(?:rtype|type)\b.*|:\w+(?: [^:]+)?:|"
    r"[*\w.`]+ \(.*\):|[*\w.`]+:(?=\s|$)|[A-Z][\w ]{2,24}:$"
)
_BULLET = re.compile(r"(?:[-*•+]|\(?\w[.)]|\d+[.)])\s+")
_INLINE = (
    (re.compile(r"https?://\S+|www\.\S+|</?\w[^>]*>"), " "),
    (re.compile(r":math:`[^`]*`|\$[^$]*\$"), " "),
    (re.compile(r":[\w:+.-]+:`~?(?:[\w.]*\.)?([^`<]*)(?:<[^`]*>)?`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`]*>`_*"), r"\1"),
    (re.compile(r"\[([^\]]*)\]\([^)]*\)|\[\d+\]_?"), r"\1"),
    (re.compile(r"[`|]+_*|\*+"), ""),
)
_WORD = re.compile(r"[\"'(\[*“‘]*(?:[^\W\d_]+(?:[-'’/.][^\W\d_]+)*|\d+(?:[.,]\d+)*%?)[\"')\]*.,;:!?”’]*")
_CODE = re.compile(r"[^\W\d_]{2,}\.[^\W\d_]|(?:[a-z][A-Z].*){2}")
_GRAMMAR = re.compile(r"\b(the|an?|of|to|is|are|in|and|for|with|be|this|that|if|by|on|as|it|or|not|from)\b")


def prose(docstring: str) -> list[str]:
    """The English paragraphs of a docstring: no doctests, literal blocks, tables, markup, signatures or addresses."""
    kept = []
    for text in map(" ".join, _prose_lines(docstring)):
        for pattern, replacement in _INLINE:
            text = pattern.sub(replacement, text)
        tokens = text.split()
        words = " ".join(token for token in tokens if _WORD.fullmatch(token) and not _CODE.search(token))
        if words.count(" ") + 1 >= max(4, 0.7 * len(tokens)) and _GRAMMAR.search(words):
            kept.append(words)
    return kept


def _prose_lines(docstring: str) -> Iterator[list[str]]:
    """Lines of text, by paragraph, bullet or parameter."""
    lines = inspect.cleandoc(docstring).splitlines()
    held: list[str] = []
    fenced = doctest = dropped = False
    block: int | None = None  # indentation of the line whose indented block is left out
    for line, following in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if text and block is not None and indent <= block:
            block = None
        fence = text.startswith("```")
        fenced ^= fence
        doctest = bool(text) and (doctest or text.startswith((">>>", "In [")))
        underlined = bool(text) and _UNDERLINE.fullmatch(following.strip()) is not None
        start = _ITEM.match(text) or _BULLET.match(text)
        dropped = text.lower() in _DROPPED_SECTIONS if underlined else dropped
        if held and (not text or underlined or start):
            yield held
            held = []
        if not text or fence or fenced or doctest or dropped or block is not None:
            continue
        if text.startswith(".. "):
            block = None if _KEPT_DIRECTIVES.match(text) else indent
            continue
        if _UNDERLINE.fullmatch(text) or text.count("|") > 1 or (underlined and text.lower() in _TITLES):
            continue
        block = indent if text.endswith("::") else None
        held.append(text[start.end() :] if start else text)
    yield held

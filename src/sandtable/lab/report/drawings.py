"""Drawings of the store made fit to stand inside the page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

_ELEMENT = re.compile(
    "svg|g|defs|path|use|clipPath|rect|circle|ellipse|line|polyline|polygon|text|tspan|title|desc|image"
)
_PAINT = (
    "color|opacity|fill|fill-opacity|fill-rule|clip-path|clip-rule|"
    "stroke|stroke-(?:width|opacity|dasharray|dashoffset|linecap|linejoin|miterlimit)|"
    "font|font-(?:size|family|style|weight)|text-anchor|image-rendering|white-space"
)
_STYLE = re.compile(_PAINT)
_ATTRIBUTE = re.compile(
    "id|d|x|y|x1|x2|y1|y2|cx|cy|r|rx|ry|dx|dy|width|height|points|viewBox|preserveAspectRatio|transform|role|"
    f"clipPathUnits|style|href|{_PAINT}"
)
_PLAIN = re.compile(r"[\w\s#.,%+'\-]*(?:\([\d\s.,%+\-]*\))?")
_OWN = re.compile(r"url\(['\"]?#([\w.\-]+)['\"]?\)")
_MENTIONED = re.compile(r"#([\w.\-]+)")
_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")
_DEPTH = 64


def clean_svg(text: str, *, prefix: str) -> Markup:
    """An SVG drawing made fit to stand inside the page: nothing that runs or reaches out, ids that no other one has.

    Only elements, attributes and style properties on a list of harmless ones are kept, and of the ids those that are
    mentioned; references must stay inside the drawing. A document type (entities may multiply without end) or anything
    that is no SVG is a `ValueError`.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("declares a document type")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"not well-formed: {error}") from error
    if _local(root.tag) != "svg":
        raise ValueError("not an SVG drawing")
    return Markup("".join(_emit(root, prefix, set(_MENTIONED.findall(text)), depth=0)))


def _emit(element: ElementTree.Element, prefix: str, mentioned: set[str], *, depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        raise ValueError("nested too deeply")
    tag = _local(element.tag)
    if not _ELEMENT.fullmatch(tag):
        return
    attributes = ""
    for key, value in element.attrib.items():
        name = _local(key)
        kept = _attribute(name, value, prefix) if _ATTRIBUTE.fullmatch(name) else None
        if kept is not None and (name != "id" or value in mentioned):
            attributes += f' {name}="{html.escape(kept)}"'
    yield f"<{tag}{attributes}>"
    keeps_text = tag in ("text", "tspan", "title", "desc")
    if keeps_text:
        yield html.escape(element.text or "")
    for child in element:
        yield from _emit(child, prefix, mentioned, depth=depth + 1)
        if keeps_text:
            yield html.escape(child.tail or "")
    yield f"</{tag}>"


def _attribute(name: str, value: str, prefix: str) -> str | None:
    """The attribute's safe value with ids prefixed, or None where it must go."""
    if name == "id":
        return prefix + value
    if name == "href":
        if value.startswith("#"):
            return f"#{prefix}{value[1:]}"
        return value if _PICTURE.fullmatch(value) else None
    if name == "style":
        declarations = (part.partition(":")[::2] for part in value.split(";"))
        kept = {
            key.strip(): _value(text.strip(), prefix) for key, text in declarations if _STYLE.fullmatch(key.strip())
        }
        return "; ".join(f"{key}: {text}" for key, text in kept.items() if text is not None)
    if name in ("d", "points", "transform"):
        return value
    return _value(value, prefix)


def _value(text: str, prefix: str) -> str | None:
    own = _OWN.fullmatch(text)
    if own:
        return f"url(#{prefix}{own[1]})"
    return text if _PLAIN.fullmatch(text) else None


def _local(tag: Any) -> str:
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""

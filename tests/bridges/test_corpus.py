"""Corpora from every kind of source, and what is wrong with some of them."""

import gzip
import json
import random
import sys
import tracemalloc
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.bridges import docstrings
from sandtable.bridges.corpus import clean, load
from sandtable.bridges.docstrings import prose

WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "inlet", "juniper", "larch", "oak")


def text(seed, words=30):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def one_line(caught):
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- cleaning --------------------------------------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=60))
def test_clean_is_idempotent_normal_and_printable(raw):
    done = clean(raw)
    assert clean(done) == done
    assert unicodedata.is_normalized("NFC", done)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in done)
    assert "  " not in done
    done.encode()


def test_clean_by_example():
    assert clean("  cafe\u0301\t\x07au \r\n lait\u200b ") == "café au lait"


def test_repetitions_are_dropped_up_to_case_and_punctuation():
    documents = [text(1), text(2), text(1).upper() + "!", text(2).replace(" ", "\n"), text(3)]
    assert list(load(documents)) == [text(1), text(2), text(3)]


def test_many_different_documents_all_pass():
    documents = [f"{word} {i}" for i, word in enumerate(WORDS * 1000)]
    assert list(load(documents, least_words=2)) == documents


def test_short_documents_and_limit():
    documents = ["too short", text(1, 19), text(2, 20), text(3, 40)]
    assert list(load(documents)) == documents[2:]
    assert list(load(documents, least_words=2, limit=2)) == documents[:2]


def test_iterating_twice_gives_the_same(tmp_path):
    source = load([text(i) for i in range(5)])
    assert list(source) == list(source)
    assert next(iter(source)) == text(0)


def test_save_and_read_again(tmp_path):
    source = load([text(i) + " é\u0301 “quoted” \\" for i in range(5)])
    saved = source.save(tmp_path / "out.jsonl")
    assert list(saved) == list(source)
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]
    with pytest.raises(ArgumentError, match=r"must end in \.jsonl"):
        source.save(tmp_path / "out.txt")


# -- files -----------------------------------------------------------------------------------------------------------

WIKITEXT = (
    " \n = First Thing = \n \n {a} @-@ end , 0 @.@ 7 <unk> \n \n = = Section = = \n \n {b} \n"
    " \n = Second ( thing ) = \n \n {c} \n"
)


def test_separators_are_found(tmp_path):
    def read(content, **options):
        (tmp_path / "a.txt").write_text(content)
        return list(load(tmp_path / "a.txt", **options))

    parts = [text(i) for i in range(4)]
    wrapped = [part.replace(" ", "\n", 5) for part in parts]
    assert read("\n\n".join(wrapped)) == parts
    assert read("\n \t\n\n".join(wrapped) + "\n") == parts
    assert read("\r\n".join(parts)) == parts
    assert read(text(0, 200).replace(" ", "\n")) == [text(0, 200)]
    assert read("\n\n".join(parts), separator="file") == [" ".join(parts)]
    assert read("\n\n".join(parts), separator="line") == parts
    assert read(WIKITEXT.format(a=parts[0], b=parts[1], c=parts[2])) == [
        f"First Thing {parts[0]}-end , 0.7 Section {parts[1]}",
        f"Second ( thing ) {parts[2]}",
    ]


def test_gzip_and_byte_order_mark(tmp_path):
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8-sig") as file:
        file.write(text(1) + "\n\n" + text(2))
    assert list(load(tmp_path / "a.txt.gz")) == [text(1), text(2)]


def test_records(tmp_path):
    lines = [json.dumps({"body": text(i), "n": i}) for i in range(3)]
    (tmp_path / "a.jsonl").write_text("\n\n".join(lines))
    assert list(load(tmp_path / "a.jsonl", field="body")) == [text(0), text(1), text(2)]
    with pytest.raises(ArgumentError, match=r"field='boddy'.*body, n; did you mean 'body'") as caught:
        load(tmp_path / "a.jsonl", field="boddy")
    one_line(caught)
    with pytest.raises(ArgumentError, match=r"must be text.*int"):
        load(tmp_path / "a.jsonl", field="n")
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n{"text": ')
    with pytest.raises(ArgumentError, match="line 2 is not JSON"):
        load(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").write_text('["text"]')
    with pytest.raises(ArgumentError, match="field='text'"):
        load(tmp_path / "c.jsonl")


def test_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.md").write_text(text(1) + "\n\n" + text(2))
    (tmp_path / "a.rst").write_text(text(3))
    (tmp_path / "sub" / "c.jsonl").write_text(json.dumps({"text": text(4)}))
    (tmp_path / "picture.png").write_bytes(b"\0\0")
    large = [text(i, 3000) for i in range(10, 20)]
    (tmp_path / "z.txt").write_text("\n\n".join(large))
    assert list(load(tmp_path)) == [text(3), text(1) + " " + text(2), text(4), *large]
    assert list(load(tmp_path, separator="blank")) == [text(3), text(1), text(2), text(4), *large]


def test_long_documents_are_cut_between_words(tmp_path):
    whole = text(1, 5000)
    (tmp_path / "a.txt").write_text(whole)
    for source in (tmp_path / "a.txt", [whole]):
        parts = list(load(source, longest=1000, least_words=1))
        assert " ".join(parts) == whole
        assert all(900 < len(part) <= 1000 for part in parts[:-1])


def test_memory_is_bounded_for_a_file_without_lines(tmp_path):
    line = text(0, 500)
    with (tmp_path / "huge.txt").open("w") as file:
        file.writelines(f"{i} {line} " for i in range(2000))
    size = (tmp_path / "huge.txt").stat().st_size
    assert size > 5e6
    source = load(tmp_path / "huge.txt", longest=10_000)
    tracemalloc.start()
    total = sum(len(part) + 1 for part in source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert abs(total - size) < 0.01 * size
    assert peak < 2**24 + 3e6  # the filter of repetitions, a block of the file and a few documents


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty corpus"),
        (b"only a few words", "empty corpus.*at least 20 words"),
        (b"text \0 binary " * 50, "binary file"),
        (b"\xff\xfe caf\xe9 " * 50, "not UTF-8"),
    ],
)
def test_bad_files(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ArgumentError, match=message) as caught:
        load(tmp_path / "a.txt")
    assert "a.txt" in one_line(caught)


def test_broken_gzip(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(text(1, 500).encode())[:-20])
    (tmp_path / "b.gz").write_bytes(b"not gzip")
    for name in ("a.gz", "b.gz"):
        with pytest.raises(ArgumentError, match="cannot be read") as caught:
            list(load(tmp_path / name, longest=10**6))
        one_line(caught)


def test_bad_sources(tmp_path):
    for missing in (tmp_path / "none", str(tmp_path / "none"), "none.txt", "./none", "a/b/c", "words and words"):
        with pytest.raises(ArgumentError, match="no such file or folder") as caught:
            load(missing)
        one_line(caught)
    with pytest.raises(ArgumentError, match="empty corpus"):
        load(tmp_path)
    for bad in (3, "", ["text", 5]):
        with pytest.raises(ArgumentError, match="source"):
            load(bad)
    with pytest.raises(ArgumentError, match="did you mean 'blank'"):
        load(["x"], separator="blanc")
    with pytest.raises(ArgumentError, match="limit=0"):
        load([text(1)], limit=0)


# -- data sets -------------------------------------------------------------------------------------------------------


def test_saved_data_set(tmp_path):
    datasets = pytest.importorskip("datasets")
    parts = datasets.DatasetDict(
        train=datasets.Dataset.from_dict({"body": [text(1), None, text(2)], "n": [1, 2, 3]}),
        test=datasets.Dataset.from_dict({"body": [text(3)], "n": [4]}),
    )
    parts.save_to_disk(str(tmp_path / "both"))
    parts["test"].save_to_disk(str(tmp_path / "one"))
    assert list(load(tmp_path / "both", field="body")) == [text(1), text(2)]
    assert list(load(tmp_path / "both", field="body", split="test")) == [text(3)]
    assert list(load(str(tmp_path / "one"), field="body")) == [text(3)]
    with pytest.raises(ArgumentError, match=r"split='trian'.*did you mean 'train'"):
        load(tmp_path / "both", split="trian")
    with pytest.raises(ArgumentError, match=r"field='text'.*fields are body, n") as caught:
        load(tmp_path / "both")
    one_line(caught)


def test_data_set_out_of_reach(monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ArgumentError, match="'someone/nothing': no path or reachable data set") as caught:
        load("someone/nothing")
    one_line(caught)


def test_without_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ArgumentError, match=r"uv sync --extra text"):
        load("someone/nothing")


# -- the built-in corpus ---------------------------------------------------------------------------------------------

NUMPY_STYLE = """Smooth a signal with a window.

The window moves over the signal, see :func:`~pack.other_function` or
`the manual <https://example.org/a>`_ and https://example.org/b for more.

Parameters
----------
x : array_like, shape (n,)
    The signal that is to be smoothed.
width, height : int, optional
    Size of the window.

.. note::
    The result has the same length as the input.

.. code-block:: python

    value = code(this)

See Also
--------
other_function : Does something else with the same signal.

Examples
--------
An example of the use of it::

    literal = block

>>> smooth([1, 2])
array of the output

========  ========
key       value
========  ========

References
----------
.. [1] A. Author, "The title of a book", 1999.
"""

GOOGLE_STYLE = """Open the door of the house.

Args:
    key_name (`str`, *optional*): The key to the door.
    force: Whether to use force on it.

```python
this is code and not prose of any kind
```
:param count: How often to try the handle.
:rtype: the type of the result
"""


def test_prose_by_example():
    assert prose(NUMPY_STYLE) == [
        "Smooth a signal with a window.",
        "The window moves over the signal, see or the manual and for more.",
        "The signal that is to be smoothed.",
        "Size of the window.",
        "The result has the same length as the input.",
        "An example of the use of it::",
    ]
    assert prose(GOOGLE_STYLE) == [
        "Open the door of the house.",
        "The key to the door.",
        "Whether to use force on it.",
        "How often to try the handle.",
    ]


@given(st.text(st.sampled_from("ab `:*.|<>[]()=-\\\n>_$#/1"), max_size=200))
def test_prose_never_fails(docstring):
    assert all(clean(paragraph) == paragraph for paragraph in prose(docstring))


def test_builtin_is_english_and_deterministic():
    standard = load(packages=("stdlib",), limit=150)
    documents = list(standard)
    assert documents == list(load("builtin", packages=["stdlib"], limit=150))
    assert len(set(documents)) == 150
    sizes = sorted(len(document.split()) for document in documents)
    assert sizes[0] >= 20
    assert sizes[-1] < 1000
    words = [word.strip(".,;:()'\"").lower() for document in documents for word in document.split()]
    assert sum(words.count(word) for word in ("the", "of", "a", "to", "is", "and")) > 0.15 * len(words)
    assert not any(mark in document for document in documents for mark in (">>>", "://", "```", ":param", "----"))


def test_builtin_documents_are_in_the_sources(tmp_path, monkeypatch):
    """Classes make documents of their own, functions share one, tests and bad syntax are passed over."""
    body = {i: f"{text(i, 60)} is the text of number {i}." for i in range(6)}
    package = tmp_path / "somepackage"
    (package / "tests").mkdir(parents=True)
    (package / "a.py").write_text(
        f'"""{body[0]}"""\nraise SystemExit\ndef f():\n    """{body[1]}"""\n'
        f'class C:\n    """{body[2]}"""\n    def m(self):\n        """{body[3]}"""\n'
    )
    (package / "copy.py").write_text(f'def again():\n    """{body[1]}"""\n')
    (package / "bad.py").write_text(f'"""{body[4]}"""\ndef def\n')
    (package / "tests" / "t.py").write_text(f'"""{body[5]}"""\n')
    paths = {"stdlib": str(tmp_path / "nothing"), "purelib": str(tmp_path), "platlib": str(tmp_path)}
    monkeypatch.setattr(docstrings.sysconfig, "get_paths", lambda: paths)
    monkeypatch.setattr(docstrings.site, "getsitepackages", lambda: [str(tmp_path)])
    found = list(load())
    assert body[1] in " ".join(found)
    assert f"{body[2]} {body[3]}" in found
    assert sorted(" ".join(found).split()) == sorted(" ".join(body[i] for i in range(4)).split())


def test_a_prefix_mixes_packages():
    names = ("rich", "jinja2", "typer")
    first = set(load(packages=names, limit=60))
    assert all(first & set(load(packages=(name,))) for name in names)


def test_unknown_packages():
    with pytest.raises(ArgumentError, match="'nunpy' is not installed; did you mean 'numpy'"):
        load(packages=("nunpy",))
    for bad in ("numpy", ()):
        with pytest.raises(ArgumentError, match="packages"):
            load(packages=bad)
    with pytest.raises(ArgumentError, match="built-in"):
        load([text(1)], packages=("numpy",))

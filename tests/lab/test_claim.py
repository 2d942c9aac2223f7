import importlib
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sandtable.arguments import ArgumentError
from sandtable.lab import Claim, Control, Source, claim, registry

TOYS = Path(__file__).with_name("toy_claims.py")


@dataclass(frozen=True)
class Settings:
    size: int = 3
    noise: float = 0.1


@dataclass
class Soft:
    size: int = 3


def measure(settings, lab):
    raise NotImplementedError


SOURCE = Source("Ada & Bob", 2023, "table 2")
GOOD = {
    "id": "topics/some-limit",
    "statement": "It converges.",
    "source": SOURCE,
    "scales": {"paper": Settings(9), "desk": Settings()},
    "measure": measure,
    "controls": (Control("noise", {"noise": 9.0}, ("limit",)),),
}


def test_claim_keeps_what_it_was_given():
    made = Claim(**GOOD, seeds={"desk": 5, "paper": 10})
    assert list(made.scales) == ["desk", "paper"]
    assert made.seeds_at("paper") == 10
    assert str(made.source) == "Ada & Bob 2023, table 2"
    assert Claim(**GOOD, seeds=4).seeds_at("paper") == 4


def test_decorator_makes_a_claim_that_can_be_called():
    @claim(id="a/b", statement="s", source=SOURCE, scales={"desk": Settings()})
    def limit(settings, lab):
        return settings.size, lab

    assert isinstance(limit, Claim)
    assert limit(Settings(7), "lab") == (7, "lab")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"id": "NoLine"}, "line/kebab-name"),
        ({"id": "topics/Some_limit"}, "line/kebab-name"),
        ({"statement": " "}, "statement"),
        ({"source": "Ada 2023"}, "Source"),
        ({"expected": "hold"}, "did you mean 'holds'"),
        ({"scales": {"smoke": Settings()}}, "desk"),
        ({"scales": {"desk": Settings(), "desktop": Settings()}}, "did you mean 'desk'"),
        ({"scales": {"desk": Soft()}}, "frozen dataclass"),
        ({"scales": {"desk": Settings}}, "frozen dataclass"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": {"desk": 3}}, "paper"),
        ({"controls": (Control("c", {"nois": 1.0}, ("limit",)),)}, "did you mean 'noise'"),
        (
            {"controls": (Control("c", {"noise": 1.0}, ("a",)), Control("c", {"noise": 2.0}, ("a",)))},
            "names must differ",
        ),
        ({"expected": "refuted"}, "erratum"),
        ({"expected": "refuted", "erratum": "wrong sign"}, "corrected"),
        ({"erratum": "wrong sign"}, "expected='refuted'"),
        ({"measure": 3}, "function"),
    ],
)
def test_mistakes_are_named(change, word):
    with pytest.raises(ArgumentError, match=word):
        Claim(**(GOOD | change))


@pytest.mark.parametrize("fields", [{"change": {}}, {"refutes": ()}, {"refutes": "limit"}, {"name": ""}])
def test_controls_are_checked(fields):
    with pytest.raises(ArgumentError):
        Control(**({"name": "c", "change": {"noise": 1.0}, "refutes": ("limit",)} | fields))


@pytest.fixture
def no_entry_points(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_entry_points", lambda: [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(path: Path, *ids: str, extra: str = "") -> Path:
    made = "\n".join(
        f"c{i} = Claim(id={name!r}, statement='s', source=Source('A', 2000, 'p. 1'), scales={{'desk': S()}}, "
        f"measure=print{extra})"
        for i, name in enumerate(ids)
    )
    head = "from dataclasses import dataclass\nfrom sandtable.lab import Claim, Source\n"
    path.write_text(f"{head}@dataclass(frozen=True)\nclass S:\n    n: int = 1\n{made}\n")
    return path


@pytest.mark.usefixtures("no_entry_points")
class TestRegistry:
    def test_files_are_loaded_by_path(self, tmp_path):
        file = write(tmp_path / "mine.py", "b/two", "a/one")
        assert list(registry.load([file])) == ["a/one", "b/two"]
        assert registry.load([file])["a/one"] is registry.find(["a/one"], [file])[0]

    def test_two_claims_of_one_name(self, tmp_path):
        files = [write(tmp_path / "x.py", "a/one"), write(tmp_path / "y.py", "a/one")]
        with pytest.raises(ArgumentError, match="two claims are called 'a/one'"):
            registry.load(files)

    def test_a_correction_must_exist(self, tmp_path):
        wrong = ", expected='refuted', erratum='e', corrected='a/oen'"
        with pytest.raises(ArgumentError, match=r"corrected='a/oen'.*did you mean"):
            registry.load([write(tmp_path / "x.py", "a/one", extra=wrong)])

    @pytest.mark.parametrize(("text", "word"), [("import nosuchmodule", "nosuchmodule"), ("def", "syntax")])
    def test_a_file_that_cannot_be_read(self, tmp_path, text, word):
        (tmp_path / "bad.py").write_text(text)
        with pytest.raises(ArgumentError, match=word):
            registry.load([tmp_path / "bad.py"])
        with pytest.raises(ArgumentError, match="no such file"):
            registry.load([tmp_path / "none.py"])

    def test_patterns(self):
        ids = ["dyck/depth", "topics/limit", "topics/slope"]
        assert registry.match(["topics/*"], ids) == ids[1:]
        assert registry.match(["topics/slope", "d*"], ids) == ["dyck/depth", "topics/slope"]
        with pytest.raises(ArgumentError, match="did you mean 'topics/limit'"):
            registry.match(["topics/limits"], ids)
        with pytest.raises(ArgumentError, match=r"did you mean 'topics/\*'"):
            registry.match(["topix/*"], ids)


class Point:
    def __init__(self, name: str, module: str) -> None:
        self.name, self.module, self.value = name, module, module


def plugin(tmp_path: Path, name: str, *, head: str = "") -> Path:
    """A package with one claim in `claims/one.py`, on a path of its own."""
    package = tmp_path / name
    (package / "claims").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "claims" / "__init__.py").write_text(head)
    write(package / "claims" / "one.py", "a/one")
    return package


@pytest.fixture
def listing(monkeypatch, tmp_path):
    """Ids of the cards of an entry point, as a process that has not imported it finds them, and whether it had to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)

    def names(package: str, *others: str) -> tuple[list[str], bool]:
        monkeypatch.setattr(registry, "_entry_points", lambda: [Point("a", f"{package}.claims")])
        for module in [name for name in sys.modules if name.partition(".")[0] in (package, *others)]:
            del sys.modules[module]
        importlib.invalidate_caches()
        said: list[str] = []
        return list(registry.cards(say=said.append)), bool(said)

    yield names
    for module in [name for name in sys.modules if name.partition("_")[0] in ("plugin", "beside")]:
        del sys.modules[module]


def test_index_is_kept_until_a_source_changes(listing, tmp_path):
    package = plugin(tmp_path, "plugin_a")
    assert listing("plugin_a") == (["a/one"], True)
    assert listing("plugin_a") == (["a/one"], False)
    write(package / "claims" / "one.py", "a/other")
    assert listing("plugin_a") == (["a/other"], True)
    write(package / "claims" / "two.py", "a/two")
    assert listing("plugin_a") == (["a/other", "a/two"], True)
    assert listing("plugin_a") == (["a/other", "a/two"], False)
    (package / "claims" / "one.py").unlink()
    assert listing("plugin_a") == (["a/two"], True)
    (package / "numbers.json").write_text("[1]")
    assert listing("plugin_a") == (["a/two"], True)


def test_index_follows_modules_beside_the_package(listing, tmp_path):
    plugin(
        tmp_path, "plugin_b", head="import beside_b\nfrom plugin_b.claims.one import c0\nCLAIMS = [c0][beside_b.n :]"
    )
    (tmp_path / "beside_b.py").write_text("n = 0")
    assert listing("plugin_b", "beside_b") == (["a/one"], True)
    assert listing("plugin_b", "beside_b") == (["a/one"], False)
    (tmp_path / "beside_b.py").write_text("n = 0 + 1")
    assert listing("plugin_b", "beside_b") == ([], True)


def test_index_follows_what_is_installed(listing, tmp_path):
    plugin(tmp_path, "plugin_c")
    assert listing("plugin_c") == (["a/one"], True)
    (tmp_path / "another-1.0.dist-info").mkdir()
    assert listing("plugin_c") == (["a/one"], True)


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-40], lambda text: text.replace("a/one", "a/oen"), lambda _: "[]"]
)
def test_a_damaged_index_is_made_anew(listing, tmp_path, damage):
    plugin(tmp_path, "plugin_d")
    assert listing("plugin_d") == (["a/one"], True)
    (file,) = (tmp_path / "cache" / "sandtable").iterdir()
    file.write_text(damage(file.read_text()))
    assert listing("plugin_d") == (["a/one"], True)


def test_what_was_imported_before_is_not_kept(listing, monkeypatch, tmp_path):
    package = plugin(tmp_path, "plugin_e")
    monkeypatch.setattr(registry, "_entry_points", lambda: [Point("a", "plugin_e.claims")])
    assert list(registry.load()) == ["a/one"]
    write(package / "claims" / "one.py", "a/other")
    registry.cards()  # of the module in memory, which is older than its file
    assert listing("plugin_e") == (["a/other"], True)


def test_files_stand_beside_the_index(listing, tmp_path):
    plugin(tmp_path, "plugin_f")
    assert listing("plugin_f") == (["a/one"], True)
    wrong = ", expected='refuted', erratum='e', corrected='a/{}'"
    found = registry.cards([write(tmp_path / "x.py", "b/two", extra=wrong.format("one"))])
    assert list(found) == ["a/one", "b/two"]
    with pytest.raises(ArgumentError, match="two claims are called 'a/one'"):
        registry.cards([write(tmp_path / "y.py", "a/one")])
    with pytest.raises(ArgumentError, match="'a/oen' is no known claim; did you mean 'a/one'"):
        registry.cards([write(tmp_path / "z.py", "b/two", extra=wrong.format("oen"))])


def test_index_without_a_cache_folder(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "_entry_points", lambda: [])
    assert registry.cards() == {}


def test_an_entry_point_that_cannot_be_imported(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "_entry_points", lambda: [Point("gone", "no_such_package.claims")])
    with pytest.raises(ArgumentError, match=r"'gone' \(no_such_package.claims\) cannot be imported"):
        registry.load()


def test_importing_the_front_door_does_not_import_torch():
    code = "import sandtable.cli, sandtable.lab.store, sys; sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_cards_are_plain():
    made = replace(Claim(**GOOD), seeds=3)
    card = registry.card(made)
    assert card["scales"]["desk"] == {"size": "3", "noise": "0.1"}
    assert card["controls"] == [{"name": "noise", "change": {"noise": "9.0"}, "refutes": ["limit"]}]


def test_a_source_tree_that_was_never_installed_has_its_own_claims(monkeypatch):
    installed = {(point.name, point.value) for point in registry._entry_points()}
    assert ("dyck", "sandtable.claims.dyck") in installed
    monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group: [])
    assert {(point.name, point.value) for point in registry._entry_points()} == installed

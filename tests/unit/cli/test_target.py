"""`load_target`: what it finds, and what it says when it does not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from updraft.cli.target import load_target
from updraft.errors import InvalidTopology, TargetError
from updraft.topology import Topology

PROGRAM = """
from updraft.topology import Topology
from lt_words import shout

app = Topology("first")
second = Topology("second")
number = 7

def make(spark):
    return Topology(f"made with {spark}")

def upper(rows):
    return shout(rows)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lt_words.py").write_text("def shout(rows):\n    return [row.upper() for row in rows]\n")
    (tmp_path / "lt_program.py").write_text(PROGRAM)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("lt_"):
            del sys.modules[name]


def name_of(target: str) -> str:
    found = load_target(target)
    assert isinstance(found, Topology)
    return found.name


@pytest.mark.parametrize("place", ["lt_program", "lt_program.py", "./lt_program.py"])
def test_a_module_or_a_file_and_app_by_default(folder: Path, place: str) -> None:
    assert name_of(place) == "first"


def test_a_named_attribute_of_an_absolute_path(folder: Path) -> None:
    assert name_of(f"{folder}/lt_program.py:second") == "second"


def test_a_function_that_makes_one_is_returned_uncalled(folder: Path) -> None:
    found = load_target("lt_program:make")
    assert callable(found)
    assert found("spark").name == "made with spark"


def test_functions_of_the_program_and_its_neighbours_travel_by_value(folder: Path) -> None:
    load_target("lt_program.py")
    carried = cloudpickle.dumps(sys.modules["lt_program"].upper)
    for name in ("lt_program", "lt_words"):
        del sys.modules[name]
    (folder / "lt_words.py").unlink()
    (folder / "lt_program.py").unlink()
    assert cloudpickle.loads(carried)(["a"]) == ["A"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("lt_absent:app", r"there is no module 'lt_absent'.*write lt_absent\.py"),
        ("lt_absent.inner:app", "there is no module 'lt_absent'"),
        ("lt_absent.py", r"there is no file 'lt_absent\.py'"),
        ("some/where", "there is no file 'some/where'"),
        (":app", "is no module name"),
        ("not-a-name", "is no module name"),
        ("lt_program:missing", "has no 'missing'; its topologies are: app, second"),
        ("lt_program:number", "is of type int, not a Topology.*its topologies are: app, second"),
        ("lt_words:app", "has no 'app'; it has no topology; its functions are: shout"),
        ("lt_program:Topology", "is of type type, not a Topology"),
    ],
)
def test_errors_say_what_there_is(folder: Path, target: str, says: str) -> None:
    with pytest.raises(TargetError, match=says):
        load_target(target)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = 1\ny = x / 0\n", r"ZeroDivisionError: division by zero \(lt_broken\.py, line 2\)"),
        (
            "import lt_nowhere\n",
            r"ModuleNotFoundError: No module named 'lt_nowhere' \(lt_broken\.py, line 1\)",
        ),
        ("x = (\n", r"SyntaxError: .*lt_broken\.py, line 1"),
    ],
)
@pytest.mark.parametrize("target", ["lt_broken", "lt_broken.py"])
def test_a_program_that_fails_to_load_names_its_line(folder: Path, target: str, code: str, says: str) -> None:
    (folder / "lt_broken.py").write_text(code)
    with pytest.raises(TargetError, match=rf"loading '{target}' failed: {says}"):
        load_target(target)
    assert "lt_broken" not in sys.modules


def test_errors_raised_on_purpose_pass_through(folder: Path) -> None:
    code = "from updraft.errors import InvalidTopology\nraise InvalidTopology('t', ['p'])\n"
    (folder / "lt_broken.py").write_text(code)
    with pytest.raises(InvalidTopology):
        load_target("lt_broken.py")


def test_a_file_may_not_take_the_name_of_a_loaded_module(folder: Path) -> None:
    (folder / "json.py").write_text("app = 1\n")
    with pytest.raises(TargetError, match="rename the file"):
        load_target("json.py")

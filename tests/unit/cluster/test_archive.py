"""The archive of Spark's classes: made once, never half, never in the way."""

from __future__ import annotations

from pathlib import Path

from updraft.cluster.archive import archive_path, classes_in, make_archive
from updraft.cluster.daemons import environment


def test_an_archive_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "classes" / "one.jsa"
    path.parent.mkdir()
    path.write_bytes(b"classes")
    assert make_archive(path, lambda made: "must not be called")
    assert path.read_bytes() == b"classes"


def test_it_is_put_in_place_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path, said = tmp_path / "classes" / "one.jsa", []

    def run_on(made: Path) -> str:
        assert made != path
        made.write_bytes(b"classes")
        return ""

    assert make_archive(path, run_on, said.append)
    assert path.read_bytes() == b"classes"
    assert list(path.parent.iterdir()) == [path]
    assert any("once" in text for text in said)


def test_one_that_cannot_be_made_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    for problem in ("no node came up", ""):
        path, said = tmp_path / "classes" / "one.jsa", []
        assert not make_archive(path, lambda made, problem=problem: problem, said.append)
        assert not list(path.parent.iterdir())
        assert "workers start as ever" in said[-1]
        assert problem in said[-1]


def test_it_belongs_to_one_java_and_one_spark(tmp_path: Path) -> None:
    assert archive_path(tmp_path) == archive_path(tmp_path)
    assert archive_path(tmp_path).suffix == ".jsa"


def test_executors_are_told_of_an_archive_only_if_there_is_one(tmp_path: Path) -> None:
    classes = classes_in(tmp_path)
    before = environment("id", tmp_path, "node1", classes)
    assert "SharedArchiveFile" not in before["JDK_JAVA_OPTIONS"]
    assert "log4j2" in before["JDK_JAVA_OPTIONS"]
    assert not list(Path(before["SPARK_CONF_DIR"]).iterdir())  # else Java ignores the archive
    classes.archive.write_bytes(b"classes")
    after = environment("id", tmp_path, "node1", classes)
    assert f"-XX:SharedArchiveFile={classes.archive}" in after["JDK_JAVA_OPTIONS"]
    assert "SharedArchiveFile" not in environment("id", tmp_path, "node1").get("JDK_JAVA_OPTIONS", "")

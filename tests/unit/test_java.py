"""Which Java is taken, and what is said when it cannot be: with small real launchers, not mocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from updraft.errors import JavaNotFound
from updraft.java import parse_major, require_java


def fake_java(folder: Path, said: str, code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit {code}\n")
    java.chmod(0o755)
    return java


def environment(*path: Path, **more: str) -> dict[str, str]:
    return {"PATH": ":".join(map(str, path)), **more}


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1"', 17),
        ("Unable to locate a Java Runtime.", None),
    ],
)
def test_version_is_read_from_what_java_says(said: str, major: int | None) -> None:
    assert parse_major(said) == major


def test_java_on_the_path_is_found(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "bin", 'openjdk version "21.0.2"')
    found = require_java(environment(tmp_path / "bin", Path("/bin")))
    assert (found.path, found.major) == (java, 21)


def test_no_java_is_one_line_that_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"^no Java found") as caught:
        require_java(environment(tmp_path))
    assert "apt install" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_old_java_is_wrong_java(tmp_path: Path) -> None:
    fake_java(tmp_path, 'java version "1.8.0_392"')
    with pytest.raises(JavaNotFound, match=r"^wrong Java: .*/java is Java 8\. Spark needs Java 17"):
        require_java(environment(tmp_path, Path("/bin")))


def test_java_home_wins_even_when_it_is_the_worse_one(tmp_path: Path) -> None:
    fake_java(tmp_path / "good", 'openjdk version "17.0.1"')
    fake_java(tmp_path / "home" / "bin", 'openjdk version "11.0.1"')
    with pytest.raises(JavaNotFound, match="is Java 11"):
        require_java(environment(tmp_path / "good", Path("/bin"), JAVA_HOME=str(tmp_path / "home")))


def test_java_home_without_java(tmp_path: Path) -> None:
    fake_java(tmp_path / "good", 'openjdk version "17.0.1"')
    with pytest.raises(JavaNotFound, match=r"no Java at JAVA_HOME=.*nowhere"):
        require_java(environment(tmp_path / "good", JAVA_HOME=str(tmp_path / "nowhere")))


def test_a_stub_that_only_complains_is_wrong_java(tmp_path: Path) -> None:
    fake_java(tmp_path, "The operation couldn't be completed. Unable to locate a Java Runtime.", code=1)
    with pytest.raises(JavaNotFound, match="does not tell its version"):
        require_java(environment(tmp_path, Path("/bin")))


def test_a_java_that_cannot_be_run_is_wrong_java(tmp_path: Path) -> None:
    (tmp_path / "java").write_bytes(b"\x7fELF this is no program")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(JavaNotFound, match="cannot be run"):
        require_java(environment(tmp_path))

"""Finds what `updraft run TARGET` names: a topology, or a function that makes one.

TARGET is `package.module:attribute` or `path/to/file.py:attribute`; the attribute is `app` unless named.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from updraft.errors import TargetError, UpdraftError

if TYPE_CHECKING:
    from updraft.topology import Topology

DEFAULT_ATTRIBUTE = "app"


def load_target(target: str) -> Topology | Callable[[Any], Topology]:
    """Import what the target names; TargetError says what is wrong with it and what there is instead."""
    place, _, attribute = target.partition(":")
    attribute = attribute or DEFAULT_ATTRIBUTE
    is_file = place.endswith(".py") or "/" in place
    root = Path(place).absolute().parent if is_file else Path.cwd()
    before = set(sys.modules)
    # As `python file.py` and `python -m module` do, so that the program finds the modules next to it.
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    module = _load_file(Path(place)) if is_file else _load_module(place)
    _ship_by_value(root, before)
    return _pick(module, place, attribute)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file '{path}'")
    if path.stem in sys.modules:
        # `json.py` would take the place of the standard library's for everybody.
        raise TargetError(f"'{path}' has the name of a module that is already loaded; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    if spec is None or spec.loader is None:
        raise TargetError(f"'{path}' is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except UpdraftError:
        del sys.modules[path.stem]
        raise
    except Exception as error:
        del sys.modules[path.stem]
        raise TargetError(_failed(str(path), error)) from error
    return module


def _load_module(name: str) -> ModuleType:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(
            f"'{name}' is no module name; write package.module:attribute or path/to/file.py:attribute"
        )
    try:
        return importlib.import_module(name)
    except UpdraftError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise TargetError(_failed(name, error)) from error
        raise TargetError(
            f"there is no module '{error.name}' here or in this environment; for a file write {name}.py"
        ) from error
    except Exception as error:
        raise TargetError(_failed(name, error)) from error


def _failed(place: str, error: Exception) -> str:
    """One line that names the user's own line, not the import machinery's."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename
    ]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"loading '{place}' failed: {type(error).__name__}: {error}{where}; --debug shows the traceback"


def _pick(module: ModuleType, place: str, attribute: str) -> Topology | Callable[[Any], Topology]:
    from updraft.topology import Topology

    found = getattr(module, attribute, None)
    if isinstance(found, Topology):
        return found
    if callable(found) and not isinstance(found, type):
        factory: Callable[[Any], Topology] = found
        return factory
    known = sorted(name for name, value in vars(module).items() if isinstance(value, Topology))
    there = f"its topologies are: {', '.join(known)}" if known else "it has no topology"
    if found is None:
        public = sorted(
            name
            for name, value in vars(module).items()
            if callable(value)
            and not name.startswith("_")
            and getattr(value, "__module__", "") == module.__name__
        )
        functions = f"; its functions are: {', '.join(public)}" if public and not known else ""
        raise TargetError(f"'{place}' has no '{attribute}'; {there}{functions}")
    kind = type(found).__name__
    raise TargetError(
        f"'{place}:{attribute}' is of type {kind}, not a Topology or a function that makes one; {there}"
    )


def _ship_by_value(root: Path, before: set[str]) -> None:
    """Send the program's own modules along with its functions: the workers have no copy to import."""
    import cloudpickle

    installed = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if name in before or name.partition(".")[0] == "updraft" or origin is None:
            continue
        path = Path(origin)
        if path.is_relative_to(root) and not any(path.is_relative_to(place) for place in installed):
            cloudpickle.register_pickle_by_value(module)

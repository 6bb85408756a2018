"""`updraft profile|tune`: learn what a topology needs, and which threshold pays best."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from updraft.cli.output import notes, results, say, write_json
from updraft.errors import UpdraftError

if TYPE_CHECKING:
    from updraft.profile import Accuracy, Profile

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def profile(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="module:attr or path/to/file.py[:attr]")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the profile is written.")] = Path(
        "profile.json"
    ),
    seconds: Annotated[float, typer.Option(min=10, help="How long to run it.")] = 300.0,
    slot: Annotated[float, typer.Option(min=1, help="Seconds that make one sample.")] = 10.0,
    load: Annotated[
        str | None, typer.Option(metavar="SCHEDULE", help="UPDRAFT_LOAD of the run; it should vary a lot.")
    ] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark master.")] = None,
    seed: Annotated[int, typer.Option(help="Which samples are learnt from.")] = 7,
    json_: Json = False,
) -> None:
    """Run a topology under its load, learn what it needs, and say how good that is.

    Selectivity of every stream, CPU of an instance by rate, CPU of a worker, and a forecaster of the input;
    learnt from 70 % of the samples, tested on the others (paper 5).

    \b
    Example:
      updraft profile updraft.apps.topk_words --load sine:100..5000/3x60s --seconds 180 --out topk.json
      updraft run updraft.apps.topk_words --policy symbiotic --profile topk.json
    """
    if load is not None:
        os.environ["UPDRAFT_LOAD"] = load
    from updraft.cli.target import load_target
    from updraft.java import require_java

    topology = load_target(target)
    require_java()
    found, accuracy = _profiled(topology, seconds, slot, master, seed)
    from updraft.profile import save

    save(found, out)
    if json_:
        write_json({"profile": str(out), "samples": found.samples, **_errors(accuracy)})
        return
    results().print(Text(f"{out}: {found.samples} samples of {slot:g} s of topology '{found.topology}'"))
    for name, curve in sorted(found.instance.items()):
        error = accuracy.instance.get(name)
        results().print(Text(f"  {name}: CPU by {curve.kind.value}, error {_percent(error)}"))
    worker = "not measured" if found.worker is None else f"by {found.worker.kind.value}"
    results().print(Text(f"  worker: CPU {worker}, error {_percent(accuracy.worker)}"))
    results().print(Text(f"  all instances together: error {_percent(accuracy.total)}"))
    results().print(
        Text(
            f"  operators, weighed by what they need: error {_percent(accuracy.weighted)}, over time {_percent(accuracy.drift)}"
        )
    )
    results().print(Text(f"  mean error {_percent(accuracy.mean)} on samples that were not learnt from"))


def _profiled(
    topology: Any, seconds: float, slot_s: float, master: str | None, seed: int
) -> tuple[Profile, Accuracy]:
    from updraft.cli.progress import watch
    from updraft.monitor import read_metrics
    from updraft.monitor.convert import shape_of
    from updraft.profile import learn
    from updraft.runtime.lifecycle import run
    from updraft.runtime.steered import METRICS_FILE

    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    lives: list[Any] = []

    def begun(live: Any) -> None:
        lives.append(live)
        timer.start()

    with tempfile.TemporaryDirectory(prefix="updraft-profile-") as scratch:
        checkpoint = Path(scratch) / "checkpoint"
        try:
            with watch(notes(), False) as progress:
                run(
                    topology,
                    checkpoint=checkpoint,
                    master=master,
                    stop=stop,
                    on_start=begun,
                    progress=progress.batch,
                    policy="static",  # one plan from beginning to end: what is learnt is of it
                )
        finally:
            timer.cancel()
        shape = shape_of(lives[0].graph)
        batches = read_metrics(checkpoint / METRICS_FILE, shape.topology, last=1_000_000)
    return learn(batches, shape, seed=seed, slot_s=slot_s)


def tune(
    app: Annotated[str, typer.Option(metavar="NAME", help="topk, sentiment or fpd.")] = "topk",
    load: Annotated[str, typer.Option(metavar="NAME", help="Such as sine, square or season.")] = "sine",
    policy: Annotated[str, typer.Option(metavar="NAME", help="Whose threshold.")] = "symbiotic",
    threshold: Annotated[
        str, typer.Option(metavar="NAME", help="cpu_max, core_max or scale_out.")
    ] = "cpu_max",
    episodes: Annotated[int, typer.Option(min=1, help="How many runs to learn from.")] = 60,
    seed: Annotated[int, typer.Option(help="Of learning and of the load.")] = 1,
    json_: Json = False,
) -> None:
    """Find a policy's threshold by Q-learning on the virtual cluster.

    The reward of a threshold is the paper's: threshold − throughput degradation (paper 5).

    \b
    Example:
      updraft tune --app topk --load square --policy symbiotic
      updraft run my.package:app --policy symbiotic --policy-set cpu_max=0.75
    """
    from updraft.simulate.tuned import THRESHOLDS, tuned

    if threshold not in THRESHOLDS:
        raise UpdraftError(f"--threshold {threshold}: there are {', '.join(THRESHOLDS)}")
    found = tuned(app, load, policy, threshold, episodes=episodes, seed=seed)
    if json_:
        write_json({"threshold": threshold, "best": found.best, "degradation": dict(found.degradation)})
        return
    for value, reward in found.reward.items():
        mark = "  ← best" if value == found.best else ""
        results().print(
            Text(
                f"{threshold} {value:.2f}  degradation {found.degradation[value]:.3f}  reward {reward:.3f}{mark}"
            )
        )
    say(f"from {len(found.reward)} runs on the virtual cluster: a model, not a measurement")


def _errors(accuracy: Accuracy) -> dict[str, Any]:
    return {
        "instance_error": accuracy.instance,
        "worker_error": accuracy.worker,
        "total_error": accuracy.total,
        "weighted_error": accuracy.weighted,
        "drift": accuracy.drift,
        "mean_error": accuracy.mean,
    }


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"

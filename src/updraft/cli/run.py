"""`updraft run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from updraft.cli.output import notes, plain, say, write_json
from updraft.errors import UpdraftError


def run(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="module:attr or path/to/file.py[:attr]")],
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where state and progress are kept; a run continues from it."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master; without it, embedded on all cores.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Who decides on parallelism and workers while it runs; 'static': nobody.",
            show_default="updraft, or static with --until-idle or --max-batches",
        ),
    ] = None,
    advise: Annotated[
        bool, typer.Option("--advise", help="Record the policy's decisions, carry none out.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", help="Workers to begin with.")] = None,
    min_workers: Annotated[int | None, typer.Option(min=1, metavar="N", help="Never fewer workers.")] = None,
    max_workers: Annotated[int | None, typer.Option(min=1, metavar="N", help="Never more workers.")] = None,
    policy_settings: Annotated[
        list[str] | None,
        typer.Option("--policy-set", metavar="KEY=VALUE", help="A threshold or rule; may be repeated."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What the topology needs, from 'updraft profile'.")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Checkpoint of an earlier run whose load forecasts may recall."),
    ] = None,
    period: Annotated[float, typer.Option(metavar="SECONDS", help="Time between decisions.")] = 10.0,
    placement: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where instances of new plans go.")
    ] = None,
    price: Annotated[
        float | None, typer.Option(metavar="AMOUNT", help="Price of a worker-hour, for the reports.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve metrics to Prometheus on loopback; 0: any.")
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when all input that is there is processed.")
    ] = False,
    max_batches: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after N batches.")] = None,
    trigger: Annotated[
        str | None,
        typer.Option(metavar="TIME", help='Least time between batches, such as "1s"; default: none.'),
    ] = None,
    checkpoint_interval: Annotated[
        int, typer.Option(min=1, metavar="N", help="Bring the checkpoint up to date every N batches.")
    ] = 1,
    retain: Annotated[int, typer.Option(min=1, metavar="N", help="Keep at least the last N commits.")] = 10,
    retain_for: Annotated[
        str | None, typer.Option(metavar="TIME", help='Keep younger commits too, such as "1h".')
    ] = None,
    allow_dropped: Annotated[
        list[str] | None,
        typer.Option(metavar="OP", help="Drop the stored state of this removed operator; may be repeated."),
    ] = None,
    enforce: Annotated[
        bool,
        typer.Option(
            "--enforce", help="Every instance in a cgroup of its own: CPU shares hold, use is counted."
        ),
    ] = False,
    share: Annotated[
        list[str] | None,
        typer.Option(metavar="OP=CORES", help="CPU share of each instance of OP; may be repeated."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per batch and one at the end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Run a topology until it is stopped.

    The attribute is a Topology, or a function that takes the Spark session and returns one; 'app' unless
    named. Ctrl-C or SIGTERM finishes the batch, commits it and exits with 0; a second one aborts. The next
    run with the same checkpoint continues after the last committed batch.

    While it runs, policy 'updraft' adapts parallelism and placement to the load. It asks for workers and
    gives them back only within --workers, --min-workers and --max-workers, if one of them is given, and
    changes nothing for ten minutes after a change by hand. --policy static switches it off; --advise only
    records what it would do.

    \b
    Example:
      updraft run wordcount.py --checkpoint checkpoints/wordcount
      updraft run my.package:app --master spark://127.0.0.1:7077 --set spark.executor.memory=1g
      updraft run wordcount.py:app --until-idle --json
      updraft run my.package:app --master spark://127.0.0.1:7077 --policy symbiotic --max-workers 4
    """
    if debug:
        context.find_root().params["debug"] = True
    spark_conf = parse_settings(settings or ())
    shares = parse_shares(share or ())
    steering = parse_policy_settings(policy_settings or (), profile)
    pace = None if trigger is None else parse_trigger(trigger)
    from updraft.cli.target import load_target
    from updraft.policy.registry import policy as policy_named

    if policy is not None:
        policy_named(policy)  # an unknown one is said before Spark starts
    from updraft.java import require_java

    topology = load_target(target)
    require_java()
    from updraft.cli.progress import watch
    from updraft.runtime.lifecycle import run as run_topology

    with watch(notes(), json_) as progress:
        result = run_topology(
            topology,
            checkpoint=checkpoint,
            master=master,
            trigger=pace,
            max_batches=max_batches,
            until_idle=until_idle,
            checkpoint_interval=checkpoint_interval,
            retain=retain,
            retain_for=retain_for,
            allow_dropped=tuple(allow_dropped or ()),
            spark_conf=spark_conf,
            enforce=enforce,
            shares=shares or None,
            progress=progress.batch,
            policy=policy,
            mode="advise" if advise else "auto",
            settings=steering,
            workers=workers,
            min_workers=min_workers,
            max_workers=max_workers,
            period_s=period,
            history=history,
            placement=placement,
            price_per_worker_hour=price,
            metrics_port=metrics_port,
            on_decision=progress.decision,
        )
    if json_:
        # One figure per batch: those were printed with the batches.
        write_json({"result": plain(result)})
        return
    say(progress.closing())
    say(
        f"state and progress are in {result.checkpoint}"
        if checkpoint
        else "without --checkpoint, state ends here"
    )
    if result.spark_log is not None:
        say(f"Spark's log: {result.spark_log}")


def parse_trigger(written: str) -> str:
    """ "1s" as Spark writes it; UpdraftError if it is no duration."""
    from updraft.operators.duration import duration_ms

    try:
        return f"{duration_ms(written)} milliseconds"
    except ValueError as error:
        raise UpdraftError(f"--trigger {error}") from error


def parse_shares(given: Sequence[str]) -> dict[str, float]:
    """OP=CORES strings as a dict; UpdraftError lists every one that is none."""
    found: dict[str, float] = {}
    wrong: list[str] = []
    for one in given:
        name, _, cores = one.rpartition("=")
        try:
            found[name.strip()] = float(cores)
        except ValueError:
            wrong.append(one)
        if not name.strip():
            wrong.append(one)
    if wrong:
        raise UpdraftError(
            "--share wants OP=CORES, such as count=0.4; got: " + ", ".join(dict.fromkeys(wrong))
        )
    return found


def parse_policy_settings(given: Sequence[str], profile: Path | None = None) -> dict[str, object]:
    """KEY=VALUE strings of `--policy-set` with their values as numbers or truth values, and the profile."""
    found: dict[str, object] = {}
    wrong: list[str] = []
    for one in given:
        name, sign, text = one.partition("=")
        truth = {"true": True, "false": False}.get(text.strip().lower())
        try:
            value: object = truth if truth is not None else float(text)
        except ValueError:
            sign = ""
        if not sign or not name.strip():
            wrong.append(one)
            continue
        whole = isinstance(value, float) and value.is_integer() and name.strip().split("_")[-1] != "s"
        found[name.strip()] = int(value) if whole else value  # type: ignore[call-overload]
    if wrong:
        raise UpdraftError("--policy-set wants KEY=NUMBER, such as core_max=0.6; got: " + ", ".join(wrong))
    if profile is not None:
        from updraft.profile import load

        found["profile"] = load(profile)
    return found


def parse_settings(given: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE strings as a dict; UpdraftError lists every one that is none."""
    wrong = [one for one in given if not one.partition("=")[1] or not one.partition("=")[0].strip()]
    if wrong:
        raise UpdraftError(
            "--set wants KEY=VALUE, such as spark.executor.memory=1g; got: " + ", ".join(wrong)
        )
    return {key.strip(): value for key, _, value in (one.partition("=") for one in given)}

"""`crl`: parse, call, show. Heavy modules are imported inside the commands, so that `crl --help` stays quick."""

import os
from pathlib import Path
from typing import Annotated

import typer

from complementary_rl import __version__
from complementary_rl.cli.errors import friendly
from complementary_rl.cli.output import say

# NumPy's BLAS starts a thread per core, and they spin at barriers; the parallel searches of a bank are the parallelism. Read when NumPy
# is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

app = typer.Typer(
    name="crl",
    help="Train LLM agents with experience: an actor and an experience extractor that evolve together.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bank_app = typer.Typer(help="Look into a run's experience bank and its past, undo an operation, move it.", no_args_is_help=True)
envs_app = typer.Typer(help="List suites, check environments, yours included, and play them.", no_args_is_help=True)
models_app = typer.Typer(help="List the models that come by name, and check whether one can be used.", no_args_is_help=True)
app.add_typer(bank_app, name="bank")
app.add_typer(envs_app, name="envs")
app.add_typer(models_app, name="models")
cluster_app = typer.Typer(help="Plan runs on many GPUs.", no_args_is_help=True)
app.add_typer(cluster_app, name="cluster")

LARGEST_ID = 2**63 - 1
"""Of an entry or operation: SQLite's integers have 64 bits."""

RunArgument = Annotated[Path, typer.Argument(help="Run directory, such as runs/quickstart/complementary.")]
OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        say(__version__)
        raise typer.Exit


@app.command()
@friendly
def quickstart(
    directory: Annotated[Path, typer.Option("--dir", help="Where the runs and the report go.")] = Path("runs/quickstart"),
    steps: Annotated[int | None, typer.Option(min=1, help="Actor updates; fewer is faster and shows less.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of both runs.")] = 0,
) -> None:
    """Co-evolve an actor and an extractor on NetHack's dark rooms beside a GRPO baseline; about ten minutes on two cores."""
    from complementary_rl.cli.quickstart import run_quickstart

    run_quickstart(directory, steps, seed)


@app.command(context_settings=OVERRIDES)
@friendly
def train(
    context: typer.Context,
    config: Annotated[str, typer.Argument(help="A TOML file, or the name of a shipped config (see `crl configs`).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved configuration and stop.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run from its newest checkpoint.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, only the metrics file.")] = False,
) -> None:
    """Train a run. Any setting can be given as an option: --run.seed 3 --actor.optim.lr=1e-3."""
    from complementary_rl.cli.train import run_train

    run_train(config, context.args, dry_run=dry_run, resume=resume, quiet=quiet)


@app.command("eval", context_settings=OVERRIDES)
@friendly
def evaluate(context: typer.Context, run: RunArgument) -> None:
    """Evaluate a run's newest checkpoint with and without experience. Takes overrides of [eval]: --eval.episodes 512."""
    from complementary_rl.cli.train import run_eval

    run_eval(run, context.args)


@app.command()
@friendly
def report(run: RunArgument) -> None:
    """Write one self-contained HTML report of a run, or of a directory of runs."""
    from complementary_rl.report.html import write_report

    say(f"report: {write_report(run)}")


@app.command()
@friendly
def export(
    run: RunArgument,
    output: Annotated[Path, typer.Argument(help="Folder to write; it gets actor/ and, where there is one, extractor/.")],
) -> None:
    """Write a run's models as normal Hugging Face folders, each with a model card."""
    from complementary_rl.cli.train import run_export

    run_export(run, output)


@app.command()
@friendly
def configs() -> None:
    """List the shipped configurations."""
    from complementary_rl.configs import shipped

    for name, path in shipped().items():
        first = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        say(f"{name:<28} {first}")


@bank_app.command("ls")
@friendly
def bank_ls(
    run: RunArgument,
    limit: Annotated[int, typer.Option(min=1, help="Entries shown.")] = 20,
    retired: Annotated[bool, typer.Option(help="Retired entries as well.")] = False,
    at_step: Annotated[int | None, typer.Option(help="As it was at the end of that step, rebuilt from the log.")] = None,
) -> None:
    """List entries, those that earned most first."""
    from complementary_rl.cli import bank

    bank.show_entries(run, limit, retired=retired, at_step=at_step)


@bank_app.command("show")
@friendly
def bank_show(run: RunArgument, entry: Annotated[int, typer.Argument(max=LARGEST_ID, help="Entry id.")]) -> None:
    """Show one entry with its statistics and the generation that wrote it."""
    from complementary_rl.cli import bank

    bank.show_entry(run, entry)


@bank_app.command("search")
@friendly
def bank_search(run: RunArgument, query: str, limit: Annotated[int, typer.Option(min=1, help="Entries shown.")] = 10) -> None:
    """Find the entries nearest to a text."""
    from complementary_rl.cli import bank

    bank.search(run, query, limit)


@bank_app.command("history")
@friendly
def bank_history(run: RunArgument, entry: Annotated[int, typer.Argument(max=LARGEST_ID, help="Entry id.")]) -> None:
    """Show the operations on an entry, its ancestors and its descendants."""
    from complementary_rl.cli import bank

    bank.show_history(run, entry)


@bank_app.command("log")
@friendly
def bank_log(run: RunArgument, limit: Annotated[int, typer.Option(min=1, max=LARGEST_ID, help="Operations shown.")] = 20) -> None:
    """Show the newest operations of the whole bank."""
    from complementary_rl.cli import bank

    bank.show_log(run, limit)


@bank_app.command("revert")
@friendly
def bank_revert(
    run: RunArgument,
    operation: Annotated[int, typer.Argument(max=LARGEST_ID, help="Operation id, from `crl bank log` or `history`.")],
) -> None:
    """Undo an operation: what it retired comes back, what it made retires. What was built on it has to be reverted first."""
    from complementary_rl.cli import bank

    bank.revert(run, operation)


@bank_app.command("export")
@friendly
def bank_export(
    run: RunArgument,
    output: Annotated[Path, typer.Argument(help="JSONL file, or folder of Parquet files, to write.")],
    form: Annotated[
        str | None, typer.Option("--format", help="jsonl or parquet; else Parquet if OUTPUT is called *.parquet.")
    ] = None,
) -> None:
    """Write the whole bank, lossless: as JSONL, or as Parquet, one file per table (needs the extra `parquet`)."""
    from complementary_rl.cli import bank

    bank.export(run, output, form)


@bank_app.command("import", context_settings=OVERRIDES)
@friendly
def bank_import(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="Directory to make, which then holds the bank.")],
    source: Annotated[Path, typer.Argument(help="What `crl bank export` wrote, or transcripts of agents, one a line.")],
    config: Annotated[str | None, typer.Option(help="Config (name or TOML file) to distil transcripts by. [quickstart]")] = None,
    extractor: Annotated[str | None, typer.Option(help="Model that reads them: a folder or hub name.")] = None,
    scope: Annotated[str, typer.Option(help="Where transcripts are filed that name no scope.")] = "default",
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first line that cannot be read.")] = False,
) -> None:
    """Make a bank from an export, or from what agents did.

    An export comes back as it was, into a directory that has no bank. Transcripts (OpenAI chat format, JSON lines) are distilled by the
    extractor; stop at any time and call it again to go on. Any setting can be given as an option: --extractor.prompts instruct.
    """
    from complementary_rl.cli import bank

    bank.import_(run, source, config, extractor, context.args, scope=scope, strict=strict)


@models_app.command("ls")
@friendly
def models_ls() -> None:
    """List the models that come with this package or in another one; folders and hub names work as well."""
    from complementary_rl.cli import models

    models.ls()


@models_app.command("check", context_settings=OVERRIDES)
@friendly
def models_check(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A name of `crl models ls`, a Hugging Face folder, or a hub name.")],
    prompts: Annotated[str, typer.Option(help="Prompt set of the dialogue.")] = "instruct",
) -> None:
    """Load a model and say what would break: tokenizer, chat template, memory, sampler against trainer, speed.

    Its settings are given as options: --dtype bfloat16 --lora.rank 8.
    """
    from complementary_rl.cli import models

    models.check(name, context.args, prompts)


@cluster_app.command("plan", context_settings=OVERRIDES)
@friendly
def cluster_plan(
    context: typer.Context,
    config: Annotated[str, typer.Argument(help="A TOML file, or the name of a shipped config (see `crl configs`).")],
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs there are; without it, as many as the run asks for.")] = None,
    gpu_memory: Annotated[float, typer.Option(min=1, help="GiB of each.")] = 80.0,
    per_node: Annotated[int, typer.Option(min=1, help="GPUs of a machine.")] = 8,
) -> None:
    """Work out the memory and place of every process of a run, and say what would not fit, before anything is paid for.

    By arithmetic: nothing is loaded. Any setting can be given as an option: --cluster.actor.train 8.
    """
    from complementary_rl.cli import cluster

    cluster.plan(config, context.args, gpus=gpus, gpu_memory=gpu_memory, per_node=per_node)


@envs_app.command("ls")
@friendly
def envs_ls() -> None:
    """List the registered suites."""
    from complementary_rl.envs.registry import suite_names

    for name in suite_names():
        say(name)


@envs_app.command("check", context_settings=OVERRIDES)
@friendly
def envs_check(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Suite name, or module:attribute of your own.")],
    episodes: Annotated[int, typer.Option(help="Episodes played.")] = 4,
) -> None:
    """Check a suite against the protocol. Options of the suite are given as --rooms 4."""
    from complementary_rl.cli.envs import check

    check(name, context.args, episodes)


@envs_app.command("play", context_settings=OVERRIDES)
@friendly
def envs_play(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Suite name, or module:attribute of your own; not with --run.")] = None,
    task: Annotated[str | None, typer.Option(help="Task id. [the first of the split]")] = None,
    split: Annotated[str, typer.Option(help="train or heldout.")] = "train",
    seed: Annotated[int, typer.Option(help="Seed of the first episode; later ones count up.")] = 0,
    policy: Annotated[str, typer.Option(help="Who plays: hand, random, or expert where the suite knows one.")] = "hand",
    episodes: Annotated[int, typer.Option(min=1, help="Episodes played, over the tasks in turn.")] = 1,
    run: Annotated[Path | None, typer.Option(help="Watch the actor of this run instead, on its own suite.")] = None,
) -> None:
    """Play a task by hand: one action a line; ? shows the rules, Ctrl-D leaves. Or watch chance, an expert, or a trained actor.

    Options of the suite are given as --rooms 4, those that this command has too as --suite.seed 4.
    """
    from complementary_rl.cli import play

    if run is not None:
        play.watch_run(run, name, task, split, episodes, context.args)
    else:
        play.play(name, context.args, task=task, split=split, seed=seed, policy=policy, episodes=episodes)


if __name__ == "__main__":
    app()

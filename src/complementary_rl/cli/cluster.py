"""`crl cluster plan`."""

import typer
from rich.console import Console
from rich.table import Table

from complementary_rl.cli.errors import overrides_from
from complementary_rl.cli.output import say
from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config
from complementary_rl.planning.plan import GIB, Plan, make_plan


def plan(config: str, arguments: list[str], *, gpus: int | None, gpu_memory: float, per_node: int) -> None:
    """Print models, processes and placement; exit 1 when something does not fit."""
    settings = load_config(find_config(config), overrides_from(arguments))
    made = make_plan(settings, gpus=gpus, gpu_bytes=int(gpu_memory * GIB), per_node=per_node)
    _print_models(made)
    _print_processes(made)
    _print_gpus(made)
    for note in made.notes:
        say(f"- {note}")
    for problem in made.problems:
        say(f"does not fit: {problem}")
    if made.problems:
        raise typer.Exit(1)
    say(f"fits: {len(made.gpus)} GPUs, by arithmetic alone; nothing was loaded or started")


def _print_models(made: Plan) -> None:
    table = Table("model", "path", "parameters", "trained", "KV cache / token", "activations / token")
    for name, path, need in made.models:
        table.add_row(
            name,
            path,
            f"{need.parameters / 1e9:.3f} B",
            f"{need.trained / 1e9:.3f} B",
            f"{need.kv_cache_per_token / 1024:.0f} KiB",
            f"{need.activations_per_token / 1024:.0f} KiB",
        )
    Console().print(table)


def _print_processes(made: Plan) -> None:
    table = Table("processes", "number", "GPUs each", "GiB each", "of which")
    for process in made.processes:
        parts = "\n".join(f"{size / GIB:.1f} {name}" for name, size in process.parts.items())
        shares = {"engine": "shared", "embedder": "shared"}
        given = shares.get(process.kind, f"{process.gpus:g}") if process.gpus else "-"
        table.add_row(process.name, str(process.count), given, f"{process.bytes / GIB:.1f}", parts)
    Console().print(table)


def _print_gpus(made: Plan) -> None:
    if not made.gpus:
        return
    table = Table("node", "GPU", "holds", f"GiB of {made.capacity / GIB:.1f}")
    for gpu in made.gpus:
        names = ", ".join(process.name for process in gpu.holds)
        table.add_row(str(gpu.index // made.per_node), str(gpu.index), names, f"{gpu.bytes / GIB:.1f}")
    Console().print(table)

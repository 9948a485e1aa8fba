"""The model card of an exported folder: what was trained, on what, how well it did, and how to load it. From files alone."""

import re
from collections.abc import Sequence
from pathlib import Path

from complementary_rl.config import Config
from complementary_rl.config_file import dump_config
from complementary_rl.models.names import known_models, public_name
from complementary_rl.report.rundir import RunData, read_run, read_summary
from complementary_rl.report.summary import MethodSummary, arm_order
from complementary_rl.report.svg import smooth

CURVE = "success.png"
UNKNOWN = "unknown"
"""How the hub calls a licence that nobody named."""
PACKAGE_LICENCE = "apache-2.0"
"""Of every model that has a name here, shipped or packaged."""
_ADAPTER = "adapter_config.json"
_LOCAL_PATH = re.compile(r'"(?:[/~]|[A-Za-z]:)(?:[^"\n]*[/\\])?([^"\n/\\]+)[/\\]*"')
_SMOOTH_SHARE = 25
_COLOURS = {"guided": "#c2410c", "free": "#1d4ed8"}
_ROLES = {
    "actor": "The **actor** acts in text environments; it was trained by GRPO, half of its rollouts with experience from a bank.",
    "extractor": "The **experience extractor** reads finished episodes and writes the entries of the bank; it was trained by CISPO on "
    "whether its entries led the actor to success.",
}


def write_card(folder: Path, run: Path, config: Config) -> Path:
    """Write `README.md`, and the curve it shows, into an exported `folder` named `actor` or `extractor`; returns its path.

    A folder with `adapter_config.json` is a PEFT adapter, any other a whole model. Results and curve are left out where `run` has none.
    """
    problems: list[str] = []
    summary = read_summary(run, problems)
    data = read_run(run)
    curve = _draw_curve(data, folder / CURVE)
    result = next(iter(summary.methods.values()), None) if summary is not None else None
    base = (config.actor if folder.name == "actor" else config.extractor).model.path
    parts = [
        _front_matter(folder, base),
        f"# {config.run.name}: {folder.name}",
        f"{_ROLES[folder.name]} Made with [Complementary RL](https://arxiv.org/abs/2603.17621), method `{config.run.method}`, from "
        f"{_told(base)}.",
        "## Results\n\n" + (_results(result, config) if result is not None else "The run has not been evaluated."),
        f"![Success in training]({CURVE})\n\nSuccess of training episodes, smoothed." if curve else "",
        "## Use\n\n" + _usage(folder, base, config),
        "## Training\n\n" + _training(config, result),
    ]
    path = folder / "README.md"
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return path


def licence_of(base: str) -> str:
    """The licence in the card of a base model's folder; `UNKNOWN` for hub names and where it says none."""
    if base in known_models():
        return PACKAGE_LICENCE
    card = Path(base).expanduser() / "README.md"
    if not card.is_file():
        return UNKNOWN
    front = re.match(r"---\n(.*?)\n---", card.read_text(encoding="utf-8", errors="replace"), re.DOTALL)
    found = re.search(r"^license:\s*[\"']?([\w.-]+)", front[1], re.MULTILINE) if front else None
    return found[1] if found else UNKNOWN


def _on_hub(base: str) -> bool:
    return (
        base not in known_models() and not Path(base).expanduser().exists() and re.fullmatch(r"[\w.-]+/[\w.-]+", base) is not None
    )


def _told(base: str) -> str:
    """The base model without the path it had on this machine."""
    return f"`{base}`" if base in known_models() or _on_hub(base) else f"`{public_name(base)}`, a local folder"


def _front_matter(folder: Path, base: str) -> str:
    from huggingface_hub import ModelCardData

    adapter = (folder / _ADAPTER).is_file()
    data = ModelCardData(
        license=licence_of(base),
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["complementary-rl", "reinforcement-learning", "arxiv:2603.17621", *(["lora"] if adapter else [])],
        base_model=base if _on_hub(base) else None,
    )
    return f"---\n{data.to_yaml()}\n---"


def _results(result: MethodSummary, config: Config) -> str:
    rows = [["suite, arm", "success", "reward", "actions per success", "episodes"]]
    named = {"": result.arms, **{part: summary.arms for part, summary in result.parts.items()}}
    for part, arms in named.items():
        for arm in arm_order(arms):
            found = arms[arm]
            estimates = [found.success.text(), found.reward.text(), found.actions_per_success.text(".1f")]
            rows.append([f"{part or config.env.suite}, {arm}", *estimates, str(found.success.n)])
    told = (
        f"Final evaluation on the `{config.eval.split}` tasks, one seed ({config.run.seed}): means with 95% bootstrap intervals over "
        "episodes. *guided*: with entries of the bank; *free*: without; *shuffled*: with another task's."
    )
    return f"{_table(rows)}\n\n{told}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _usage(folder: Path, base: str, config: Config) -> str:
    if (folder / _ADAPTER).is_file():
        where = base if _on_hub(base) else "BASE_MODEL"
        loading = (
            "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n"
            f'base = AutoModelForCausalLM.from_pretrained("{where}")\nmodel = PeftModel.from_pretrained(base, "{folder.name}")'
        )
        serving = f"vllm serve {where} --enable-lora --lora-modules {folder.name}=./{folder.name}"
    else:
        loading = f'from transformers import AutoModelForCausalLM\n\nmodel = AutoModelForCausalLM.from_pretrained("{folder.name}")'
        serving = f"vllm serve ./{folder.name}"
    prompts = (config.actor if folder.name == "actor" else config.extractor).prompts
    bank = (
        f"It reads prompts of the set `{Path(prompts).name}`. "
        'Its experience is in the run\'s bank: `crl bank search RUN "a task"` finds entries, `crl bank export RUN bank.jsonl` takes them '
        "along, and `--bank.source bank.jsonl` starts another run with them."
    )
    tokenizer = f'\n\nfrom transformers import AutoTokenizer\n\ntokenizer = AutoTokenizer.from_pretrained("{folder.name}")'
    return f"```python\n{loading}{tokenizer}\n```\n\n```\n{serving}\n```\n\n{bank}"


def _training(config: Config, result: MethodSummary | None) -> str:
    told = [f"Suite `{config.env.suite}`, seed {config.run.seed}."]
    if result is not None:
        made = result.provenance
        told += [
            f"{result.steps} actor updates on {result.episodes} episodes, {result.extractor_updates} extractor updates, in "
            f"{result.wall_seconds:.0f} s on {made.machine.cores} cores ({made.machine.processor}).",
            f"complementary-rl {made.version}, commit {made.commit or 'unknown'}.",
        ]
    # Where things were on this machine is nobody's business.
    settings = dump_config(config.model_copy(update={"run": config.run.model_copy(update={"dir": None})}))
    settings = _LOCAL_PATH.sub(r'"\1"', settings)
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", settings))])
    return f"{' '.join(told)}\n\n<details><summary>Configuration</summary>\n\n{fence}toml\n{settings}{fence}\n\n</details>"


def _draw_curve(data: RunData, path: Path) -> bool:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = {condition: data.series("rollout", condition, "success") for condition in _COLOURS}
    lines = {condition: (x, y) for condition, (x, y) in lines.items() if x}
    if not lines:
        return False
    figure = Figure(figsize=(7.0, 3.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for condition, (x, y) in lines.items():
        axes.plot(x, smooth(y, max(1, len(y) // _SMOOTH_SHARE)), color=_COLOURS[condition], label=condition)
    axes.set(xlabel="training episodes", ylabel="success", ylim=(0, 1))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    return True

"""A study's page of the documentation, made from its declaration and its results alone."""

from collections.abc import Sequence
from pathlib import Path

from studies.declaration import Study, load, names
from studies.figures import figures
from studies.results import RESULTS, RunRecord, StudyResults, read
from studies.tables import Rows, difference_table, interquartile_table, main_table, reach_table

PAGES = Path(__file__).parents[1] / "docs" / "studies"
_MARK = "<!-- Made by `python -m studies report {}`: change the declaration or the results, not this page. -->\n"


def write_page(study: Study, results: StudyResults, pages: Path = PAGES) -> Path:
    """Write the page, its figures and the index of all studies; returns the page. Figures that no longer have runs are removed."""
    seeds = study.seeds.reported
    images = pages / "images"
    images.mkdir(parents=True, exist_ok=True)
    drawn = figures(study, results, seeds)
    for old in images.glob("*.svg"):
        if old.name.removesuffix(".svg").rsplit("-", 2)[0] == study.name and old.name not in drawn:
            old.unlink()
    for file, svg in drawn.items():
        (images / file).write_text(svg, encoding="utf-8")
    page = pages / f"{study.name}.md"
    page.write_text(render(study, results, seeds, list(drawn)), encoding="utf-8")
    write_index(pages)
    return page


def write_index(pages: Path = PAGES) -> Path:
    """Write the page that lists all studies; returns it."""
    pages.mkdir(parents=True, exist_ok=True)
    index = pages / "index.md"
    index.write_text(render_index(pages), encoding="utf-8")
    return index


def render(study: Study, results: StudyResults, seeds: Sequence[int], images: Sequence[str]) -> str:
    """The page as Markdown."""
    runs = [run for variant in study.variants for run in results.of(variant, seeds)]
    parts = [_MARK.format(study.name), f"# {study.title}", study.question.strip(), _protocol(study, runs)]
    if not runs:
        parts.append("No run of a reported seed has finished yet.")
    else:
        parts += ["## Results", "Means with 95 % t intervals over seeds.", _markdown(main_table(study, results, seeds))]
        parts += _section("Differences, seed by seed", difference_table(study, results, seeds), "With 95 % t intervals.")
        reach = "Training episodes until success in training is that of the other one's last tenth, as a share of its episodes."
        parts += _section("Episodes to the same success", reach_table(study, results, seeds), reach)
        robust = "Interquartile means with 95 % bootstrap intervals over seeds (arXiv 2108.13264); too narrow for few seeds."
        parts += _section("Interquartile means", interquartile_table(study, results, seeds), robust)
    if images:
        parts.append(
            "## Learning curves\n\nSuccess in training, mean over seeds; dots: the final evaluation with its 95 % t interval."
        )
        parts += [f"![{file}](images/{file})" for file in images]
    if study.findings:
        parts += ["## What it says", study.findings.strip()]
    parts += ["## Variants", _variants(study)]
    return "\n\n".join(parts) + "\n"


def render_index(pages: Path) -> str:
    """All declared studies, and how far each is."""
    rows = [["study", "what is compared", "runs of reported seeds"]]
    for name in names():
        study = load(name)
        results = read(study, RESULTS / f"{name}.json")
        have = sum(len(results.of(variant, study.seeds.reported)) for variant in study.variants)
        title = f"[{study.title}]({name}.md)" if (pages / f"{name}.md").exists() else study.title
        rows.append([f"`{name}`", title, f"{have} of {len(study.variants) * len(study.seeds.reported)}"])
    head = [
        _MARK.format("NAME"),
        "# Studies",
        "Each is declared in `studies/declarations/NAME.toml`: what is compared, on which seeds settings were chosen and which are "
        "reported, which figures it is there for. `python -m studies run NAME` makes the runs that are missing (`--jobs`, `--seeds`, "
        "`--variants` narrow it; `--steps` makes a trial apart), goes on with interrupted ones, and shares runs of an equal "
        "configuration between studies; `python -m studies report NAME` writes its page. Figures of every run are in "
        "`studies/results/NAME.json`.",
    ]
    return "\n\n".join([*head, _markdown(rows)]) + "\n"


def _protocol(study: Study, runs: Sequence[RunRecord]) -> str:
    def told(seeds: Sequence[int]) -> str:
        return ", ".join(map(str, seeds))

    steps = study.resolve(next(iter(study.variants)), study.seeds.reported[0]).run.steps
    lines = [
        f"- `python -m studies run {study.name}`, configuration `{study.config}`, {steps} actor steps.",
        f"- Settings were chosen on seeds {told(study.seeds.development)}; reported are seeds {told(study.seeds.reported)}.",
    ]
    if runs:
        wanted = len(study.variants) * len(study.seeds.reported)
        commits = sorted({(run.commit or "unknown")[:7] + ("+" if (run.commit or "").endswith("+") else "") for run in runs})
        lines.append(
            f"- {len(runs)} of {wanted} runs, commit{'s' * (len(commits) > 1)} {', '.join(commits)} (+: with local changes)."
        )
        lines += [f"- Machine: {machine}." for machine in sorted({run.machine for run in runs})]
    return "\n".join(lines)


def _variants(study: Study) -> str:
    def told(overrides: dict[str, object]) -> str:
        return "<br>".join(f"`{name} = {value}`" for name, value in overrides.items()) or "as configured"

    rows = [["variant", "settings"], ["all", told(dict(study.common))]]
    rows += [[name, told(dict(overrides))] for name, overrides in study.variants.items()]
    return _markdown(rows)


def _section(title: str, rows: Rows, note: str) -> list[str]:
    return [f"### {title}", note, _markdown(rows)] if len(rows) > 1 else []


def _markdown(rows: Rows) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])

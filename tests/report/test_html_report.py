"""The HTML report: complete, self-contained, safe with hostile text, and there for runs that are not whole."""

import json
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from helpers.run_dirs import episode, make_quickstart, make_run

from complementary_rl.errors import InfrastructureError, UserError
from complementary_rl.report.curves import extractor_pictures
from complementary_rl.report.html import render_report, write_report
from complementary_rl.report.rundir import read_run
from complementary_rl.report.summary import combine_summaries, load_summary

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """What a browser would make of a page: its elements, its text, and the nesting errors it would have to forgive."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.errors: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        self.errors += [f"<{tag}> is never closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.errors.append(f"</{tag}> closes something else")

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for attribute, value in self.attributes if attribute == name]


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_quickstart(tmp_path_factory.mktemp("report") / "quickstart")
    combine_summaries(directory, [directory / "baseline", directory / "complementary"])
    return directory


@pytest.fixture(scope="module")
def page(quickstart: Path) -> Page:
    return Page(write_report(quickstart).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("report") / "run")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_page_needs_nothing_from_outside(page: Page) -> None:
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    links = page.values("href") + page.values("xlink:href") + page.values("src")
    assert links
    assert all(link.startswith("#") for link in links)
    assert not any(name.startswith("on") for name, _ in page.attributes)


def test_policy_forbids_scripts_and_requests(page: Page) -> None:
    assert any("default-src 'none'" in content for content in page.values("content"))


def test_page_is_well_formed_and_its_links_lead_somewhere(page: Page) -> None:
    assert page.errors == []
    ids = Counter(page.values("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    for target in page.values("href") + page.values("xlink:href"):
        assert target.removeprefix("#") in ids, target


def test_page_says_what_was_measured(quickstart: Path, page: Page) -> None:
    summary = load_summary(quickstart)
    for method in summary.methods.values():
        for arm in method.arms.values():
            assert f"{arm.success.mean:.0%}" in page.text.replace(" %", "%")
            assert arm.actions_per_success.text(".1f") in page.text
    assert "complementary" in page.text
    assert "baseline" in page.text


def test_plots_show_guided_free_and_baseline(page: Page) -> None:
    assert page.tags["svg"] >= 6
    for label in ("guided", "free", "baseline"):
        assert label in page.text
    styles = " ".join(page.values("style"))
    for colour in ("guided", "free", "baseline"):
        assert f"var(--{colour})" in styles


def test_the_bank_s_dead_weight_and_refusals_are_drawn(page: Page) -> None:
    for text in ("Dead weight", "never used", "Refused texts", "says nothing", "repetition", "too short", "never retrieved"):
        assert text in page.text, text
    assert "restates task" not in page.text, "what never happened has no curve"


def test_unreadable_answers_are_drawn_by_the_name_training_counts_them_under(run: Path) -> None:
    data = read_run(run)
    before = extractor_pictures(data, "run")[1].svg
    for record in data.steps:
        record["experience"]["unparsable"] = record["experience"]["distilled"]
    assert extractor_pictures(data, "run")[1].svg != before


def test_entries_come_with_their_lineage(page: Page) -> None:
    assert "the exit is in the north-west" in page.text
    assert "earlier entr" in page.text


def test_episodes_can_be_read(page: Page) -> None:
    for words in ("Find the exit of the Amber Gallery.", "with experience", "without experience", "won", "lost", "at 7 7, out"):
        assert words in page.text


def test_text_from_outside_is_shown_and_never_acts(page: Page) -> None:
    for hostile in ("<script>alert('bank')</script>", "<script>alert('episode')</script>", "<b>boom</b>", "Find <i>me</i>."):
        assert hostile in page.text


def test_names_of_runs_are_not_trusted(finished: Path, tmp_path: Path) -> None:
    hostile = '"><img src=x onerror=alert(1)> $\\frac{ \\1'
    shutil.copytree(finished, tmp_path / "runs" / hostile)
    shutil.copytree(finished, tmp_path / "runs" / "other")
    page = Page(render_report(tmp_path / "runs"))
    assert page.errors == []
    assert "img" not in page.tags
    assert hostile in page.text


def test_unpaired_surrogates_and_control_characters_do_not_stop_it(run: Path) -> None:
    strange = episode(99, 0, True, True)
    strange["turns"][0]["observation"] = "\ud800 \x00 \x1b[31m"
    (run / "episodes" / "eval_999.jsonl").write_text(json.dumps(strange) + "\n")
    assert "[31m" in write_report(run).read_text(encoding="utf-8")


@pytest.mark.parametrize("missing", ["run.json", "config.toml", "metrics.jsonl", "bank.sqlite", "episodes", "summary.json"])
def test_a_missing_part_is_left_out(run: Path, missing: str) -> None:
    path = run / missing
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    page = Page(write_report(run).read_text(encoding="utf-8"))
    assert page.errors == []
    assert page.tags["h2"] >= 3


def test_a_killed_run_has_a_page_that_says_so(tmp_path: Path) -> None:
    page = Page(write_report(make_run(tmp_path / "run", finished=False)).read_text(encoding="utf-8"))
    assert "Not finished" in page.text
    assert "damaged line" in page.text
    assert page.tags["svg"] >= 4


def test_a_run_of_one_step_has_a_page(tmp_path: Path) -> None:
    assert Page(render_report(make_run(tmp_path / "run", steps=1))).errors == []


def test_a_damaged_bank_is_named_and_the_rest_is_there(run: Path) -> None:
    (run / "bank.sqlite").write_bytes(b"no database" * 100)
    page = Page(render_report(run))
    assert "bank.sqlite" in page.text
    assert page.tags["svg"] >= 2


def test_numbers_that_are_none_are_passed_over(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        for value in (float("nan"), float("inf"), "high", None):
            rollout = {"guided": {"success": value}, "free": {"success": value}}
            file.write(
                json.dumps({"kind": "step", "step": 900, "episodes": value, "rollout": rollout, "time": {"update": value}}) + "\n"
            )
        file.write(json.dumps({"kind": "step", "step": "x", "rollout": [], "experience": 3, "time": "long"}) + "\n")
    page = Page(render_report(run))
    assert page.errors == []
    assert not any("nan" in path for path in page.values("d"))


def test_the_same_run_gives_the_same_page(run: Path) -> None:
    assert render_report(run) == render_report(run)


def test_a_directory_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run"):
        write_report(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        write_report(tmp_path / "nowhere")


def test_a_disk_that_refuses_is_reported_with_a_remedy(run: Path) -> None:
    (run / "report.html").mkdir()
    with pytest.raises(InfrastructureError, match=r"cannot write .*report\.html"):
        write_report(run)


def test_finished_runs_of_a_directory_are_put_together(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "runs" / "complementary"), make_run(tmp_path / "runs" / "baseline", "baseline")]
    make_run(tmp_path / "runs" / "killed", finished=False)
    page = Page(render_report(tmp_path / "runs"))
    for run in runs:
        (method,) = load_summary(run).methods.values()
        assert f"{method.success_free.mean:.0%}" in page.text
    assert "Success against the baseline" in page.text
    assert "Not finished, and so only in the curves: killed." in page.text


def test_a_damaged_summary_is_named(run: Path) -> None:
    (run / "summary.json").write_text("{}")
    page = Page(render_report(run))
    assert "schema version" in page.text
    assert "There is no final evaluation" in page.text

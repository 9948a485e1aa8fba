"""What the report draws from: times, curves, findings, plots."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.run_dirs import make_quickstart, make_run

from complementary_rl.readable import shortened
from complementary_rl.report.bankview import failed_entries, top_entries
from complementary_rl.report.curves import extractor_pictures, training_pictures
from complementary_rl.report.episodes import arm_of, chosen_episodes
from complementary_rl.report.findings import differences, sentence, tiles
from complementary_rl.report.rundir import find_runs, read_run
from complementary_rl.report.summary import combine_summaries
from complementary_rl.report.svg import Line, line_plot, smooth
from complementary_rl.report.times import time_shares
from complementary_rl.seeds import rng


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_quickstart(tmp_path_factory.mktemp("runs") / "quickstart")
    combine_summaries(directory, [directory / "baseline", directory / "complementary"])
    return directory


# --- times -----------------------------------------------------------------------------------------------------------------------


def test_time_is_summed_by_part_and_the_rest_is_other() -> None:
    times = {"step": 10.0, "rollout": 6.0, "rollout_sample": 4.0, "rollout_environment": 1.5, "update": 2.0, "distill": 1.0}
    shares = time_shares(
        [{"kind": "step", "time": times}, {"kind": "step", "time": times}, {"kind": "eval", "time": {"update": 99.0}}]
    )
    assert shares.seconds == pytest.approx(
        {"actor sampling": 8.0, "actor update": 4.0, "distillation": 2.0, "environment": 3.0, "other": 3.0}
    )
    assert shares.compute_share == pytest.approx(14.0 / 20.0)


def test_unknown_parts_are_other_and_nothing_is_no_share() -> None:
    assert time_shares([{"kind": "step", "time": {"new": 2.0, "update": 2.0}}]).seconds == {"actor update": 2.0, "other": 2.0}
    assert time_shares([{"kind": "step"}]).compute_share is None


# --- plots -----------------------------------------------------------------------------------------------------------------------


def test_smoothing_is_a_centred_mean_that_keeps_the_length() -> None:
    assert smooth([0.0, 0.0, 3.0, 0.0, 0.0], 3) == pytest.approx([0.0, 1.0, 1.0, 1.0, 0.0])
    assert smooth([2.0, 4.0], 1) == [2.0, 4.0]
    assert smooth([], 5) == []


def test_plot_has_the_page_s_colours_and_escaped_labels() -> None:
    svg = line_plot(
        [Line("<b>$x$ & y", "guided", [0, 1], [0.2, 0.8], point=(0.7, 0.6, 0.8))], name="p", x_label="episodes", share=True
    )
    assert "var(--guided)" in svg
    assert not re.search(r"#[0-9a-fA-F]{6}", svg)
    assert re.search(r">&lt;b&gt;\$x\$ &amp; y</text>", svg)
    assert svg.count("<svg") == 1


def test_plot_of_many_points_stays_small() -> None:
    x = list(range(20_000))
    noise = rng("noise").random(len(x)).tolist()
    svg = line_plot([Line("long", "free", x, noise)], name="long", x_label="episodes", window=10)
    assert len(svg) < 60_000


def test_labels_at_the_same_height_are_pushed_apart() -> None:
    lines = [Line(name, "free", [0, 1], [0.5, 0.5]) for name in ("one", "two", "three")]
    svg = line_plot(lines, name="labels", x_label="episodes", share=True)
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>(?:one|two|three)<', svg))
    assert len(heights) == 3
    assert all(b - a > 8.5 for a, b in pairwise(heights))


# --- runs and curves -------------------------------------------------------------------------------------------------------------


def test_the_baseline_is_the_last_of_several_runs(quickstart: Path) -> None:
    assert [path.name for path in find_runs(quickstart)] == ["complementary", "baseline"]
    assert find_runs(quickstart / "baseline") == [quickstart / "baseline"]


def test_curves_are_over_training_episodes(quickstart: Path) -> None:
    run = read_run(quickstart / "complementary")
    x, y = run.series("rollout", "guided", "success")
    assert x[0] == 6 * 64
    assert len(x) == len(y) == 35
    pictures = training_pictures([run, read_run(quickstart / "baseline")])
    assert [picture.title for picture in pictures] == ["Success", "Actions per success"]
    assert all(picture.svg for picture in pictures)


def test_what_was_not_recorded_is_said(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "run", "baseline"))
    assert {picture.note for picture in extractor_pictures(run, "r") if picture.svg is None} == {"Nothing was recorded for this."}


# --- findings --------------------------------------------------------------------------------------------------------------------


def test_findings_give_the_measured_numbers(quickstart: Path) -> None:
    summary = combine_summaries(quickstart, [quickstart / "baseline", quickstart / "complementary"])
    runs = [read_run(path) for path in find_runs(quickstart)]
    guided = f"{summary.methods['complementary'].success_guided.mean:.0%}"
    assert [(tile.method, tile.condition) for tile in tiles(summary, runs)] == [
        ("complementary", "with experience"),
        ("complementary", "without experience"),
        ("baseline", "without experience"),
    ]
    assert tiles(summary, runs)[0].value == guided
    assert f"complementary reaches the goal in {guided} of evaluation episodes with experience" in sentence(summary, runs)
    assert [clear for _, _, clear in differences(summary)] == [True, True, True]


def test_an_unfinished_run_is_told_by_its_training(tmp_path: Path) -> None:
    runs = [read_run(make_run(tmp_path / "run", finished=False))]
    assert sentence(None, runs).startswith("Not finished")
    assert {tile.detail for tile in tiles(None, runs)} == {"in training, mean of the last 10 steps"}


# --- bank and episodes -----------------------------------------------------------------------------------------------------------


def test_proven_and_failed_entries_are_different_ones(quickstart: Path) -> None:
    bank = read_run(quickstart / "complementary").bank
    assert bank is not None
    top, failed = top_entries(bank), failed_entries(bank)
    assert top
    assert failed
    assert not {entry.id for entry in top} & {entry.id for entry in failed}
    assert [entry.successes for entry in top] == sorted((entry.successes for entry in top), reverse=True)
    assert all(entry.share <= 25 for entry in failed)
    assert any(entry.parents for entry in top)


def test_long_texts_are_cut_with_a_note() -> None:
    assert shortened("x" * 10, 20) == "x" * 10
    assert shortened("x" * 1020, 20) == "x" * 20 + " … (1,000 more characters)"


def test_one_episode_of_each_kind_newest_evaluation_first(quickstart: Path) -> None:
    chosen = chosen_episodes(quickstart / "complementary", "complementary")
    assert [(episode.arm, episode.success) for episode in chosen] == [
        ("with experience", True),
        ("with experience", False),
        ("without experience", True),
        ("without experience", False),
    ]
    assert {episode.where for episode in chosen} == {"evaluation after step 40"}


def test_shuffled_episodes_are_not_taken_for_guided_ones() -> None:
    assert arm_of({"id": "eval250-shuffled-3", "condition": "guided"}) == "shuffled"
    assert arm_of({"id": "s3-g1-m0", "condition": "guided"}) == "guided"
    assert arm_of({"id": "eval250-guided-3", "arm": "other"}) == "other"

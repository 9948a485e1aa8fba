"""summary.json: intervals by hand, the documented schema, combining runs."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.run_dirs import MACHINE, make_quickstart, make_run

from complementary_rl.errors import InfrastructureError, UserError
from complementary_rl.report import intervals
from complementary_rl.report.intervals import Estimate, bootstrap_interval, rate_difference, ratio_interval
from complementary_rl.report.provenance import Provenance, current_commit, current_machine, peak_memory_gb
from complementary_rl.report.summary import (
    ArmSummary,
    BankSummary,
    MethodSummary,
    RunSummary,
    combine_summaries,
    load_summary,
    write_summary,
)

PROVENANCE = Provenance(command="crl train", version="0", commit=None, seed=0, config_hash="c", machine=MACHINE)


def rate(successes: int, n: int) -> Estimate:
    return bootstrap_interval([1.0] * successes + [0.0] * (n - successes), seed=0)


def method(**arms: Estimate) -> MethodSummary:
    results = {name: ArmSummary(success=success, reward=success, actions=success) for name, success in arms.items()}
    return MethodSummary(arms=results, steps=2, episodes=128, wall_seconds=3.5, provenance=PROVENANCE)


def write_run(directory: Path, name: str, result: MethodSummary) -> Path:
    directory.mkdir(parents=True)
    write_summary(directory, RunSummary(name=directory.name, methods={name: result}))
    return directory


# --- intervals -------------------------------------------------------------------------------------------------------------------


def test_interval_of_a_rate_is_near_the_normal_approximation() -> None:
    estimate = rate(60, 200)
    spread = 1.96 * (0.3 * 0.7 / 200) ** 0.5
    assert estimate.mean == pytest.approx(0.3)
    assert estimate.lo == pytest.approx(0.3 - spread, abs=0.012)
    assert estimate.hi == pytest.approx(0.3 + spread, abs=0.012)
    assert estimate.n == 200


def test_ratio_is_of_sums_and_its_interval_covers_the_truth() -> None:
    assert ratio_interval([4.0, 16.0, 10.0], [1.0, 0.0, 1.0], 0).mean == 15.0
    assert ratio_interval([16.0, 16.0], [0.0, 0.0], 0) == Estimate()
    assert ratio_interval([], [], 0) == Estimate()
    same = ratio_interval([6.0] * 5, [1.0] * 5, 0)
    assert (same.mean, same.lo, same.hi, same.n) == (6.0, 6.0, 6.0, 5)
    random = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        wins = random.random(150) < 0.4
        costs = np.where(wins, 6.0, 16.0)
        interval = ratio_interval(costs.tolist(), wins.tolist(), seed)
        assert interval.lo is not None and interval.hi is not None
        covered += interval.lo <= (0.4 * 6 + 0.6 * 16) / 0.4 <= interval.hi
    assert 0.88 <= covered / 200 <= 0.99


def test_interval_covers_the_truth_about_95_times_in_100() -> None:
    random = np.random.default_rng(0)
    intervals = [bootstrap_interval(random.exponential(size=80).tolist(), seed) for seed in range(200)]
    covered = np.mean([interval.lo <= 1.0 <= interval.hi for interval in intervals])  # type: ignore[operator]
    assert 0.88 <= covered <= 0.98


def test_interval_depends_on_values_and_seed_only() -> None:
    values = [0.1 * i for i in range(50)]
    assert bootstrap_interval(values, 3) == bootstrap_interval(values, 3)
    assert bootstrap_interval(values, 3).lo != bootstrap_interval(values, 4).lo


def test_no_values_and_equal_values() -> None:
    assert bootstrap_interval([], 0) == Estimate(mean=None, lo=None, hi=None, n=0)
    assert bootstrap_interval([2.0, 2.0], 0) == Estimate(mean=2.0, lo=2.0, hi=2.0, n=2)
    assert Estimate().text() == "–"


def test_long_lists_are_resampled_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_BLOCK_ELEMENTS", 1000)
    estimate = bootstrap_interval(np.random.default_rng(0).normal(5.0, 1.0, 1500).tolist(), 0)
    assert estimate.mean == pytest.approx(5.0, abs=0.1)
    assert estimate.hi - estimate.lo == pytest.approx(2 * 1.96 / 1500**0.5, rel=0.1)  # type: ignore[operator]


def test_difference_of_rates() -> None:
    spread = 1.96 * (0.7 * 0.3 / 256 + 0.3 * 0.7 / 256) ** 0.5
    difference = rate_difference(rate(179, 256), rate(77, 256), seed=0)
    assert difference.mean == pytest.approx(102 / 256)
    assert difference.lo == pytest.approx(102 / 256 - spread, abs=0.01)
    assert difference.hi == pytest.approx(102 / 256 + spread, abs=0.01)
    assert difference.n == 256
    assert rate_difference(rate(1, 2), Estimate(), seed=0).n == 0


# --- schema ----------------------------------------------------------------------------------------------------------------------


def test_documented_fields_are_in_the_file(tmp_path: Path) -> None:
    data = json.loads((make_run(tmp_path / "run") / "summary.json").read_text())
    assert data["schema_version"] == 2
    assert data["wall_seconds"] == pytest.approx(48.0)
    assert data["episodes"] == 40 * 64
    assert data["bank"]["size"] > 0
    result = data["methods"]["complementary"]
    for name in ("success_guided", "success_free", "reward", "actions"):
        assert set(result[name]) == {"mean", "lo", "hi", "n"}
        assert result[name]["n"] == 256
    assert result["success_guided"] == result["arms"]["guided"]["success"]
    assert result["arms"]["shuffled"]["reward"]["n"] == 256
    assert 0 < result["time"]["compute_share"] <= 1
    assert set(result["provenance"]) >= {"command", "commit", "seed", "config_hash", "machine"}


def test_headline_is_guided_where_there_is_experience_and_free_otherwise() -> None:
    assert method(guided=rate(3, 4), free=rate(1, 4)).reward.mean == 0.75
    baseline = method(free=rate(1, 4))
    assert (baseline.reward.mean, baseline.success_guided.n, baseline.success_guided.mean) == (0.25, 0, None)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    summary = RunSummary(name="r", methods={"complementary": method(guided=rate(3, 4), free=rate(1, 4))})
    write_summary(tmp_path, summary)
    assert load_summary(tmp_path) == summary
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_newer_fields_are_ignored(tmp_path: Path) -> None:
    path = write_summary(tmp_path, RunSummary(name="r", methods={"baseline": method(free=rate(1, 4))}))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"something": {"new": 1}}))
    assert load_summary(tmp_path).name == "r"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "schema version None"),
        ('{"schema_version": 99}', "schema version 99, this version reads 2"),
        ('{"schema_version": 2, "name": "r"}', "damaged at methods"),
    ],
)
def test_unreadable_summaries_are_refused_with_the_cause(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(UserError, match=message):
        load_summary(tmp_path)


def test_missing_summary_says_when_it_comes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="written when a run has finished"):
        load_summary(tmp_path)


def test_a_disk_that_refuses_is_an_infrastructure_error(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"cannot write .*summary\.json"):
        write_summary(tmp_path / "nowhere", RunSummary(name="r", methods={}))


def test_bank_summary_from_counts() -> None:
    counts = {"size": 7.0, "add": 9.0, "vote": 3.0, "evict": 2.0, "return": 4.0, "duplicate_share": 0.25}
    bank = BankSummary.from_counts(counts, useful_share=0.5)
    assert (bank.size, bank.added, bank.votes, bank.evicted, bank.returned, bank.merged) == (7, 9, 3, 2, 4, 0)
    assert (bank.duplicate_share, bank.useful_share) == (0.25, 0.5)


# --- several runs ----------------------------------------------------------------------------------------------------------------


def test_runs_are_combined_and_compared_with_the_baseline(tmp_path: Path) -> None:
    directory = make_quickstart(tmp_path / "quickstart")
    combined = combine_summaries(directory, [directory / "baseline", directory / "complementary"])
    assert load_summary(directory) == combined
    assert list(combined.methods) == ["complementary", "baseline"]
    assert combined.episodes == 2 * 40 * 64
    assert combined.wall_seconds == pytest.approx(48.0)
    assert combined.bank == combined.methods["complementary"].bank
    assert [(c.method, c.arm) for c in combined.comparisons] == [
        ("complementary", "guided"),
        ("complementary", "free"),
        ("complementary", "shuffled"),
    ]
    guided = combined.methods["complementary"].success_guided.mean
    baseline = combined.methods["baseline"].success_free.mean
    assert combined.comparisons[0].difference.mean == pytest.approx(guided - baseline)  # type: ignore[operator]


def test_two_runs_of_one_method_go_by_their_directories(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"seed{seed}", "complementary", method(guided=rate(1, 2))) for seed in range(2)]
    combined = combine_summaries(tmp_path, runs)
    assert list(combined.methods) == ["seed0", "seed1"]
    assert combined.comparisons == ()


def test_the_terminal_table_names_every_arm_and_difference(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a", "complementary", method(guided=rate(8, 8), free=rate(4, 8))),
        write_run(tmp_path / "b", "baseline", method(free=rate(0, 8))),
    ]
    lines = str(combine_summaries(tmp_path, runs)).splitlines()
    assert lines[1].split()[:3] == ["complementary", "guided", "1.00"]
    assert lines[3].split()[:3] == ["baseline", "free", "0.00"]
    assert "complementary guided − baseline: +1.00 [+1.00, +1.00]" in lines
    assert Estimate(mean=-0.001, lo=-0.2, hi=0.001, n=9).text("+z.2f") == "+0.00 [-0.20, +0.00]"


# --- provenance ------------------------------------------------------------------------------------------------------------------


def test_provenance_is_of_this_machine_and_checkout() -> None:
    machine = current_machine()
    assert machine.cores >= 1
    assert machine.processor
    commit = current_commit()
    assert commit is None or len(commit.removesuffix("+")) == 40
    memory = peak_memory_gb()
    assert memory is None or 0.01 < memory < 1000

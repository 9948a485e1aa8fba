"""Writing checkpoints aside, replacing one of the same step, and what a death in between leaves."""

from pathlib import Path

from complementary_rl.training.checkpoint import checkpoints, read_state, recover_replaced, write_checkpoint


def write(root: Path, step: int, mark: str, keep: int = 1) -> Path:
    return write_checkpoint(root, step, engines=[], bank=None, state={"mark": mark}, keep=keep)


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        write(tmp_path, step, "x", keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step_2", "step_10"]


def test_a_checkpoint_of_the_same_step_replaces_the_old_one_whole(tmp_path: Path) -> None:
    (write(tmp_path, 4, "old") / "left_over").touch()
    assert read_state(write(tmp_path, 4, "new")) == {"mark": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["step_4"]
    assert not (tmp_path / "step_4" / "left_over").exists()


def test_what_a_process_died_replacing_is_put_back(tmp_path: Path) -> None:
    write(tmp_path, 4, "old").rename(tmp_path / ".step_4.replaced")
    assert checkpoints(tmp_path) == []
    recover_replaced(tmp_path)
    assert read_state(checkpoints(tmp_path)[0]) == {"mark": "old"}


def test_a_complete_replacement_is_not_undone(tmp_path: Path) -> None:
    write(tmp_path, 4, "old").rename(tmp_path / ".step_4.replaced")
    write(tmp_path, 4, "new")
    recover_replaced(tmp_path)
    assert read_state(checkpoints(tmp_path)[0]) == {"mark": "new"}

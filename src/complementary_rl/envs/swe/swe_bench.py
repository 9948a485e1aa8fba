"""The suite `swe-bench`: instances of SWE-bench in its own images, judged by its rule: all FAIL_TO_PASS and PASS_TO_PASS tests pass.

Rows with an ``eval_script`` are judged by the ``swebench`` package: its script runs in the image, its parser reads the log. For other rows
pytest runs the files of the named tests in the image, and its own report is read.
"""

import importlib.util
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from complementary_rl.envs.protocol import Policy
from complementary_rl.envs.swe.docker import Containers, Docker, require_engine, require_image
from complementary_rl.envs.swe.episode import RepositorySuite
from complementary_rl.envs.swe.grading import passed, run_tests, take_all
from complementary_rl.envs.swe.instances import Instance, read_instances
from complementary_rl.envs.swe.sandbox import Limits, Sandbox
from complementary_rl.errors import UserError
from complementary_rl.types import Split, Task

_TESTBED = "/testbed"
_CONDA = "/opt/miniconda3"
_ENVIRONMENT = {
    "PATH": f"{_CONDA}/envs/testbed/bin:{_CONDA}/bin:/usr/local/bin:/usr/bin:/bin",
    "CONDA_DEFAULT_ENV": "testbed",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
}
_LIMITS = Limits(memory=4 << 30, processes=256, file_size=1 << 30, disk=8 << 30, files=300_000, output=64 << 20)
_TOUCHED = re.compile(r"^diff --git a/(\S+) b/", re.MULTILINE)
# What the patch is about to add may be there already.
_APPLY = 'for path in "${@:2}"; do git checkout --quiet "$1" -- "$path" || rm -rf -- "$path"; done; git apply /tmp/test.patch'


@dataclass(frozen=True, slots=True)
class Published:
    """An instance, as a `Problem`."""

    instance: Instance
    containers: Containers

    @property
    def issue(self) -> str:
        return self.instance.problem_statement

    def open(self, limits: Limits) -> Docker:
        sandbox = self.containers(None, limits)
        try:
            sandbox.fill()
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def solved(self, left: Sandbox, limits: Limits) -> bool:
        with self.open(limits) as sandbox:
            take_all(left.repository, sandbox.repository)
            return _resolved(self.instance, sandbox) if self.instance.eval_script else _all_pass(self.instance, sandbox)


class SweBench(RepositorySuite):
    """Suite ``swe-bench``.

    `data` is a file of instances (see `instances`), `heldout` the names of repositories that are held out; `docker_command` runs the
    engine, with `docker_options` besides. The other options are `RepositorySuite`'s. Raises UserError for options and rows that do not
    fit, and where there is no engine or an image is missing.
    """

    name = "swe-bench"
    needs = "Docker and the images of SWE-bench; the package swebench (MIT) for rows with an eval_script"

    def __init__(
        self,
        data: str,
        *,
        heldout: Sequence[str] = (),
        max_turns: int = 50,
        command_seconds: int = 60,
        test_seconds: int = 1800,
        observation_chars: int = 8000,
        docker_command: str = "docker",
        docker_options: Sequence[str] = (),
    ) -> None:
        super().__init__(
            max_turns=max_turns,
            command_seconds=command_seconds,
            test_seconds=test_seconds,
            observation_chars=observation_chars,
            limits=_LIMITS,
            repository=_TESTBED,
        )
        instances = read_instances(Path(data).expanduser())
        if unknown := set(heldout) - {one.repo for one in instances}:
            raise UserError(f"swe-bench: heldout names {', '.join(sorted(unknown))}; {data} has nothing of it")
        require_engine(docker_command)
        for one in instances:
            _check(one)
            require_image(docker_command, one.image_name)
            containers = Containers(one.image_name, docker_command, tuple(docker_options), _TESTBED, tuple(_ENVIRONMENT.items()))
            description = f"Mend a bug in {one.repo}: {one.problem_statement.strip().partition(chr(10))[0]}"
            split: Split = "heldout" if one.repo in heldout else "train"
            self.add(Published(one, containers), f"{self.name}/{one.instance_id}", description, split)

    def expert(self, task: Task, seed: int) -> Policy:
        """Applies the patch of the instance and submits."""
        problem = self.problem(task)
        assert isinstance(problem, Published)
        actions = iter([f"bash\ngit apply <<'END OF PATCH'\n{problem.instance.patch.rstrip()}\n\nEND OF PATCH", "submit"])
        return lambda _: next(actions)


def _check(instance: Instance) -> None:
    if instance.eval_script and not importlib.util.find_spec("swebench"):
        raise UserError(f"swe-bench: {instance.instance_id} has an eval_script: pip install 'swebench>=5' to judge by it")
    strange = [name for name in (*instance.failing, *instance.passing) if "::" not in name]
    if strange and not instance.eval_script:
        raise UserError(
            f"swe-bench: {instance.instance_id} has tests that are not pytest's ({strange[0]!r}) and no eval_script to run them; "
            "take the rows of the current data set, which have one"
        )


def _resolved(instance: Instance, sandbox: Sandbox) -> bool:
    from swebench.harness.grading import get_eval_report
    from swebench.harness.utils import make_test_spec

    row = instance.model_dump(by_alias=True)
    spec = make_test_spec(
        {**row, "image": instance.image_name, "FAIL_TO_PASS": [*instance.failing], "PASS_TO_PASS": [*instance.passing]}
    )
    (sandbox.tmp / "eval.sh").write_text(spec.eval_script, encoding="utf-8")
    result = sandbox.run(["bash", "/tmp/eval.sh"])
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".log") as log:
        log.write(result.output)
        log.flush()
        prediction = {"instance_id": instance.instance_id, "model_patch": "", "model_name_or_path": "actor"}
        report = get_eval_report(spec, prediction, log.name, include_tests_status=False)
    return not result.stopped and bool(report[instance.instance_id]["resolved"])


def _all_pass(instance: Instance, sandbox: Sandbox) -> bool:
    (sandbox.tmp / "test.patch").write_text(instance.test_patch, encoding="utf-8")
    touched = _TOUCHED.findall(instance.test_patch)
    if sandbox.run(["bash", "-c", _APPLY, "bash", instance.base_commit, *touched]).code:
        return False
    wanted = {*instance.failing, *instance.passing}
    files = sorted({name.partition("::")[0] for name in wanted})
    return wanted <= passed(run_tests(sandbox, files, options=()))

"""Containers as the sandbox of the SWE suite: on a `docker` that is scripted, and on a real engine where one is named.

    CRL_TEST_ENGINE="podman --ulimit=nproc=1000" python -m pytest tests/envs/test_swe_docker.py

names the engine and more options of its ``run``; the image `PYTHON_IMAGE` must be there.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.containers import FakeDocker
from helpers.swe import PATIENT, tiny_data

from complementary_rl.envs.swe import docker as module
from complementary_rl.envs.swe.docker import PYTHON_IMAGE, Containers
from complementary_rl.envs.swe.sandbox import Limits, Sandbox
from complementary_rl.envs.swe.suite import Swe
from complementary_rl.errors import InfrastructureError, UserError

ENGINE = os.environ.get("CRL_TEST_ENGINE", "").split()
real = pytest.param("real", marks=pytest.mark.skipif(not ENGINE, reason="CRL_TEST_ENGINE names no engine"))
LIMITS = Limits(seconds=PATIENT, memory=300 << 20)


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    tmp_path.chmod(0o755)
    (tmp_path / "docker").mkdir()
    fake = FakeDocker(tmp_path / "docker", [PYTHON_IMAGE])
    monkeypatch.setenv("PATH", str(fake.bin), prepend=os.pathsep)
    module.user_options.cache_clear()
    return fake


@pytest.fixture(params=["fake", real])
def containers(request: pytest.FixtureRequest) -> Containers:
    if request.param == "real":
        return Containers(PYTHON_IMAGE, ENGINE[0], tuple(ENGINE[1:]))
    request.getfixturevalue("docker")
    return Containers(PYTHON_IMAGE)


@pytest.fixture
def sandbox(containers: Containers) -> Iterator[Sandbox]:
    with containers(None, LIMITS) as one:
        yield one


def test_how_a_container_is_made(docker: FakeDocker, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    limits = Limits(seconds=7, memory=5 << 20, processes=9, file_size=3 << 20)
    with Containers(PYTHON_IMAGE, options=("--runtime=runsc",))(tmp_path / "tools", limits) as one:
        one.run(["true"])
        [*_, call] = docker.calls("run")
        user = one.user or os.getuid()
        for option in [
            "--rm --pull=never --network=none --read-only --cap-drop=ALL --security-opt=no-new-privileges --runtime=runsc",
            f"--user={user}:{user} --memory={5 << 20} --memory-swap={5 << 20} --pids-limit=9 --ulimit=fsize={3 << 20} --ulimit=cpu=8",
            f"--mount=type=bind,src={one.repository},dst=/repo --mount=type=bind,src={one.tmp},dst=/tmp --workdir=/repo",
            f"--mount=type=bind,src={tmp_path / 'tools'},dst=/opt/tools,readonly",
        ]:
            assert set(option.split()) <= set(call)
        assert "--interactive" not in call
        # Should nobody be left to end it, it ends itself.
        assert call[call.index(PYTHON_IMAGE) :][-2:] == ["37", "true"]
        one.run(["cat"], b"x")
        assert "--interactive" in docker.calls("run")[-1]


def test_what_commands_do_and_what_stays(sandbox: Sandbox) -> None:
    (sandbox.repository / "one.txt").write_text("from outside\n")
    result = sandbox.run(["bash", "-c", "cat one.txt; echo inside > two.txt; echo kept > /tmp/three; exit 3"])
    assert (result.output, result.code, result.stopped) == ("from outside\n", 3, "")
    assert (sandbox.repository / "two.txt").read_text() == "inside\n"
    assert sandbox.run(["cat", "/tmp/three"]).output == "kept\n"
    assert sandbox.run(["cat"], "größer".encode()).output == "größer"
    assert sandbox.read_tmp("three") == "kept\n"


def test_a_command_that_never_ends(containers: Containers) -> None:
    with containers(None, Limits(seconds=6)) as one:
        start = time.monotonic()
        result = one.run(["bash", "-c", "echo before; sleep 300 & sleep 300"])
        assert (result.output, result.stopped) == ("before\n", "it ran longer than 6 seconds")
        assert time.monotonic() - start < 60


def test_endless_output(containers: Containers) -> None:
    with containers(None, Limits(seconds=PATIENT, output=10_000)) as one:
        result = one.run(["yes"])
        assert result.stopped == "it wrote more than 10,000 bytes of output"
        assert result.output.startswith("y\ny\n")


@pytest.mark.skipif(not ENGINE, reason="CRL_TEST_ENGINE names no engine")
def test_what_a_real_container_cannot_do() -> None:
    with Containers(PYTHON_IMAGE, ENGINE[0], tuple(ENGINE[1:]))(
        None, Limits(seconds=PATIENT, memory=200 << 20, processes=20)
    ) as one:
        assert one.run(["bash", "-c", "echo x > /x || echo x > /usr/x"]).code
        assert "unreachable" in one.run(["python", "-c", "import socket; socket.create_connection(('1.1.1.1', 53), 3)"]).output
        assert one.run(["python", "-c", "x = b'x' * (1 << 29)"]).code
        assert "Resource temporarily unavailable" in one.run(["bash", "-c", "for i in $(seq 40); do sleep 9 & done"]).output
        status = one.run(["grep", "-E", "^(CapEff|CapBnd|NoNewPrivs)", "/proc/self/status"]).output.split()
        assert [int(value, 16) for value in status[1::2]] == [0, 0, 1]


@pytest.mark.usefixtures("docker")
def test_an_episode(tmp_path: Path) -> None:
    suite = Swe(str(tiny_data(tmp_path / "data")), sandbox="docker", test_seconds=PATIENT, command_seconds=PATIENT)
    task, env = suite.tasks("train")[0], suite.make_env()
    observation, _ = env.reset(task, 0)
    expert = suite.expert(task, 0)
    env.step(expert(observation))
    assert env.step("bash cat tiny/words.py")[0].count("> least") == 1
    assert env.step(expert(""))[1] == 1.0
    env.reset(task, 0)
    assert env.step("submit")[1] == 0.0
    env.close()


def test_an_engine_that_fails_is_no_fault_of_the_command(docker: FakeDocker) -> None:
    with Containers(PYTHON_IMAGE)(None, LIMITS) as one:
        assert one.run(["bash", "-c", "exit 125"]).code == 125
        docker.fail({"run": "Error: the disk is full"})
        with pytest.raises(InfrastructureError, match="docker could not run a command: Error: the disk is full"):
            one.run(["true"])


def test_what_is_missing_is_told_with_its_remedy(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"the image other:1 is not here; fetch it: docker pull other:1"):
        Containers("other:1")(None, LIMITS)
    docker.fail({"run": "permission denied"})
    with pytest.raises(UserError, match=r"cannot write in folders of this machine: permission denied"):
        Containers(PYTHON_IMAGE)(None, LIMITS)
    docker.fail({"info": "Cannot connect to the Docker daemon"})
    with pytest.raises(UserError, match=r"docker has no engine to talk to \(Cannot connect to the Docker daemon\)"):
        Containers(PYTHON_IMAGE)(None, LIMITS)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="no program 'docker' here"):
        Containers(PYTHON_IMAGE)(None, LIMITS)


def test_a_sandbox_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="sandbox is 'chroot'"):
        Swe(str(tmp_path), sandbox="chroot")
    with pytest.raises(UserError, match="image is for"):
        Swe(str(tmp_path), image="python:3")

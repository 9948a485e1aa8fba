"""The sandbox of the SWE suite: what commands can do, what they cannot reach, and what ends them."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.swe import needs_sandbox

from complementary_rl.envs.swe import bubblewrap as module
from complementary_rl.envs.swe.bubblewrap import Bubblewrap
from complementary_rl.envs.swe.sandbox import Limits, Result, Sandbox
from complementary_rl.errors import UserError


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Bubblewrap(limits=Limits(seconds=20, disk=8 << 20, file_size=4 << 20, files=500, memory=200 << 20, output=1 << 20)) as one:
        yield one


def bash(sandbox: Sandbox, command: str) -> Result:
    return sandbox.run(["bash", "-c", command])


def python(sandbox: Sandbox, program: str) -> Result:
    return sandbox.run(["python", "-c", program])


def running(mark: str) -> bool:
    """Whether a process of the host has `mark` in its command line."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return mark in listed


@needs_sandbox
def test_a_command_works_in_the_repository_and_what_it_writes_stays(sandbox: Sandbox) -> None:
    (sandbox.repository / "one.txt").write_text("from outside\n")
    result = bash(sandbox, "pwd; cat one.txt; echo inside > two.txt; echo kept > /tmp/three; echo wrong >&2; exit 3")
    assert bash(sandbox, "echo a > /dev/stderr; echo b > /dev/stdout").output == "a\nb\n"
    assert (result.output, result.code, result.stopped) == ("/repo\nfrom outside\nwrong\n", 3, "")
    assert (sandbox.repository / "two.txt").read_text() == "inside\n"
    assert bash(sandbox, "cat /tmp/three").output == "kept\n"


@needs_sandbox
def test_standard_input_and_the_same_python(sandbox: Sandbox) -> None:
    result = sandbox.run(["python", "-c", "import sys; print(sys.stdin.read(), sys.version)"], "größer".encode())
    assert result.output == f"größer {sys.version}\n"
    assert bash(sandbox, "cat").output == ""
    assert python(sandbox, "import multiprocessing; multiprocessing.Lock(); print('ok')").output == "ok\n"


@needs_sandbox
def test_there_is_no_network(sandbox: Sandbox) -> None:
    assert "unreachable" in python(sandbox, "import socket; socket.create_connection(('1.1.1.1', 53), 3)").output
    assert bash(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1 | xargs").output == "lo\n"


@needs_sandbox
def test_no_file_of_the_host_can_be_read(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    for path in (secret, Path("/etc/shadow"), Path("/etc/passwd"), Path.home(), Path(__file__), Path("/sys")):
        if not Path(sys.base_prefix).is_relative_to(path):
            assert "No such file" in bash(sandbox, f"ls -d {path}").output
    link = sandbox.repository / "link"
    link.symlink_to(secret)
    assert "No such file" in bash(sandbox, "cat link; cat ../../../../../../etc/shadow").output
    assert bash(sandbox, "cat /proc/*/environ | tr '\\0' '\\n' | grep -c ^PATH").code == 0
    assert str(tmp_path) not in bash(sandbox, "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'").output


@needs_sandbox
def test_the_environment_of_the_host_does_not_leak(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN_OF_THE_HOST", "leaked")
    assert "leaked" not in bash(sandbox, "cat /proc/*/environ; env").output


@needs_sandbox
def test_nothing_outside_can_be_written(sandbox: Sandbox) -> None:
    for path in ("/x", "/usr/x", "/etc/x", "/dev/x", "/opt/x", "/proc/x", f"{sys.base_prefix}/x"):
        assert bash(sandbox, f"echo x > {path}").code != 0, path


# It only opens: what root may write in /proc/sys takes effect on the whole machine.
_WRITABLE = """
import os
for folder, folders, files in os.walk('/proc'):
    # A process may write to what it has open itself.
    folders[:] = [name for name in folders if not (name.isdigit() and folder != '/proc') and name not in ('fd', 'task', 'map_files')]
    for path in (os.path.join(folder, name) for name in files):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue
        print(path)
"""


@needs_sandbox
def test_no_setting_of_the_kernel_can_be_written(sandbox: Sandbox) -> None:
    assert python(sandbox, _WRITABLE) == Result("", 0)


@needs_sandbox
def test_no_privilege_is_left_or_can_be_gained(sandbox: Sandbox) -> None:
    status = bash(sandbox, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status").output.split()
    assert status[:-1:2] == ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:"]
    assert [int(value) for value in status[1::2]] == [0, 0, 0, 0, 0, 1]
    assert bash(sandbox, "unshare -U true").code != 0
    assert bash(sandbox, "mount -t tmpfs none /tmp").code != 0
    assert bash(sandbox, "ulimit -v unlimited").code != 0


@needs_sandbox
def test_processes_of_the_host_cannot_be_seen_or_killed(sandbox: Sandbox) -> None:
    assert bash(sandbox, f"kill -0 {os.getpid()}").code != 0
    assert int(bash(sandbox, "ls /proc | grep -c '^[0-9]'").output) < 8


@needs_sandbox
def test_a_command_that_never_ends(sandbox: Sandbox) -> None:
    mark = f"{uuid.uuid4().int % 10**9}.5"
    with Bubblewrap(limits=Limits(seconds=1)) as short:
        start = time.monotonic()
        result = bash(short, f"echo before; (sleep {mark} & sleep {mark}) & trap '' TERM INT; sleep {mark}")
        assert time.monotonic() - start < 5
    assert (result.output, result.stopped) == ("before\n", "it ran longer than 1 seconds")
    assert not running(mark)


@needs_sandbox
def test_closing_its_output_does_not_end_the_watch() -> None:
    with Bubblewrap(limits=Limits(seconds=1)) as short:
        assert bash(short, "exec >&- 2>&-; sleep 60").stopped == "it ran longer than 1 seconds"


@needs_sandbox
def test_a_daemon_does_not_outlive_its_command(sandbox: Sandbox) -> None:
    mark = f"{uuid.uuid4().int % 10**9}.5"
    start = time.monotonic()
    assert bash(sandbox, f"setsid nohup sleep {mark} & echo started") == Result("started\n", 0)
    assert time.monotonic() - start < 5
    time.sleep(0.3)
    assert not running(mark)


@needs_sandbox
@pytest.mark.parametrize("bomb", [":(){ :|:& };: ; sleep 3", "python -c 'import os\nwhile True: os.fork()'"])
def test_a_fork_bomb(sandbox: Sandbox, bomb: str) -> None:
    mark = uuid.uuid4().hex
    start = time.monotonic()
    result = bash(sandbox, f": {mark}; {bomb}")
    # The kernel refuses more processes; the watch may see them, or their memory, first.
    assert result.stopped or "Resource temporarily unavailable" in result.output
    assert time.monotonic() - start < 15
    time.sleep(0.3)
    assert not running(mark)


@needs_sandbox
def test_threads_count(sandbox: Sandbox) -> None:
    program = "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(15,)).start()"
    result = python(sandbox, f"import threading; threading.stack_size(65536)\n{program}")
    assert "processes and threads" in result.stopped or "can't start new thread" in result.output


@needs_sandbox
def test_one_process_that_takes_memory(sandbox: Sandbox) -> None:
    assert "MemoryError" in python(sandbox, "x = bytearray(1 << 30)").output


@needs_sandbox
def test_many_processes_that_take_memory_together(sandbox: Sandbox) -> None:
    program = "import os, time\nfor _ in range(5): os.fork()\nx = b'x' * (20 << 20)\ntime.sleep(15)"
    assert python(sandbox, program).stopped == "it used more than 200 MiB of memory"


@needs_sandbox
def test_endless_output(sandbox: Sandbox) -> None:
    result = bash(sandbox, "yes")
    assert result.stopped == "it wrote more than 1,048,576 bytes of output"
    assert len(result.output) == 1 << 20


@needs_sandbox
def test_output_that_is_not_text(sandbox: Sandbox) -> None:
    assert bash(sandbox, r"printf '\xff\xfe ok'").output == "\ufffd\ufffd ok"


@needs_sandbox
@pytest.mark.parametrize("where", ["/repo", "/tmp", "/dev/shm"])
def test_filling_the_disk(sandbox: Sandbox, where: str) -> None:
    assert "limit exceeded" in bash(sandbox, f"head -c 5000000 /dev/zero > {where}/big; rm {where}/big").output
    result = bash(sandbox, f"for i in $(seq 1000); do head -c 1000000 /dev/zero > {where}/$i || exit; done; sleep 15")
    assert result.stopped == "/repo and /tmp hold more than 8 MiB"
    # It can be mended: until then every command says so.
    assert bash(sandbox, "true").stopped
    assert not bash(sandbox, f"rm {where}/*").stopped


@needs_sandbox
def test_many_small_files(sandbox: Sandbox) -> None:
    assert bash(sandbox, "while true; do : > $((n++)); done").stopped == "there are more than 500 files in /repo and /tmp"


@needs_sandbox
@pytest.mark.parametrize(
    "trick",
    [
        "for i in $(seq 400); do mkdir 12345678901234567890; cd 12345678901234567890; done; head -c 3000000 /dev/zero > big",
        "mkdir closed; head -c 3000000 /dev/zero > closed/big; chmod 000 closed",
    ],
)
def test_what_cannot_be_measured_is_not_hidden_and_goes_when_it_closes(trick: str) -> None:
    with Bubblewrap(limits=Limits(disk=2 << 20)) as one:
        stopped = bash(one, trick).stopped
        assert "cannot be measured" in stopped or "hold more than" in stopped
    assert not one.repository.exists()


@needs_sandbox
def test_tools_can_be_read_and_not_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hello").write_text("#!/bin/sh\necho hello from a tool\n")
    (tmp_path / "bin" / "hello").chmod(0o755)
    (tmp_path / "greeting.py").write_text("WORD = 'servus'\n")
    with Bubblewrap(tools=tmp_path) as one:
        assert bash(one, "hello").output == "hello from a tool\n"
        assert python(one, "import greeting; print(greeting.WORD)").output == "servus\n"
        assert bash(one, "echo x >> /opt/tools/greeting.py").code != 0


def test_without_bubblewrap_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="apt-get install bubblewrap"):
        module.require_bubblewrap.__wrapped__()


def test_where_namespaces_are_off_it_says_how_to_allow_them(monkeypatch: pytest.MonkeyPatch) -> None:
    refuses = ["sh", "-c", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"]
    monkeypatch.setattr(module, "_bubblewrap", lambda *_: refuses)
    monkeypatch.setattr(module.shutil, "which", lambda _: "/usr/bin/bwrap")
    with pytest.raises(UserError, match=r"No permissions to create new namespace.*unprivileged_userns_clone"):
        module.require_bubblewrap.__wrapped__()

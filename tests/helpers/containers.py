"""A `docker` to put on PATH: it writes down how it was called, and runs commands on this machine in the folders that were to be mounted."""

import json
import sys
from pathlib import Path

_PROGRAM = r"""#!{python}
import contextlib, json, os, re, shutil, signal, subprocess, sys
from pathlib import Path

here, arguments = Path({here!r}), sys.argv[1:]
with open(here / "calls.jsonl", "a") as calls:
    calls.write(json.dumps(arguments) + "\n")
command = arguments.pop(0)
faults = json.loads((here / "faults.json").read_text())
if command in faults:
    print(faults[command], file=sys.stderr)
    sys.exit(125)
if command == "image":
    sys.exit(arguments[-1] not in {images!r})
if command == "cp":
    shutil.copytree(here / "testbed", arguments[1], symlinks=True, dirs_exist_ok=True)
if command == "rm" and (here / arguments[-1]).exists():
    with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
        os.killpg(int((here / arguments[-1]).read_text()), signal.SIGKILL)
if command != "run":
    sys.exit()
mounts, environment, user = {{}}, {{}}, ""
while arguments[0].startswith("--"):
    name, _, value = arguments.pop(0).partition("=")
    if name == "--name":
        (here / value).write_text(str(os.getpgid(0)))
    elif name == "--user":
        user = value
    elif name == "--mount":
        fields = dict(part.partition("=")[::2] for part in value.split(","))
        mounts[fields["dst"]] = fields["src"]
    elif name == "--env":
        environment[value.partition("=")[0]] = value.partition("=")[2]


def inside(text):
    return re.sub(r"/(repo|testbed|tmp|opt/tools)\b", lambda found: mounts.get(found[0], found[0]), text)


environment = {{name: inside(value) for name, value in environment.items()}}
environment["PATH"] = str(here / "bin") + ":" + environment.get("PATH", os.defpath)
folder = mounts.get("/repo") or mounts.get("/testbed")
code = subprocess.run([inside(part) for part in arguments[1:]], cwd=folder, env=environment).returncode
if os.geteuid() == 0:
    subprocess.run(["chown", "-R", user, *(one for there, one in mounts.items() if there != "/opt/tools")], check=True)
sys.exit(code)
"""


class FakeDocker:
    """Its folder `bin` is to come first on PATH. `images` are there, and hold in /testbed what is in the folder `testbed`."""

    def __init__(self, folder: Path, images: list[str]) -> None:
        self.bin, self.testbed, self._folder = folder / "bin", folder / "testbed", folder
        self.bin.mkdir()
        self.testbed.mkdir()
        self.fail({})
        self._program("docker", _PROGRAM.format(python=sys.executable, here=str(folder), images=images))
        self._program("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')

    def fail(self, faults: dict[str, str]) -> None:
        """From now on the commands of docker that are named fail and say this."""
        (self._folder / "faults.json").write_text(json.dumps(faults))

    def calls(self, command: str) -> list[list[str]]:
        """The arguments of all calls of a command of docker."""
        lines = (self._folder / "calls.jsonl").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call[0] == command]

    def _program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

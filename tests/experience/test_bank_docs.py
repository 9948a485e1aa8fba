"""The example of docs/bank.md runs as printed."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = re.search(r"```python\n(.*?)```", (DOCS / "bank.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example.group(1), "bank.md", "exec"), names)
    assert names["shown"].text == "the exit is in the north-west"

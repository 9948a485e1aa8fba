"""The script's package, whose simulated room and measurements the tests share, is not installed: put it on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

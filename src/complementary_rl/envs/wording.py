"""How a model words an action, reduced to the words that matter."""

import re

_VERB = re.compile(r"^(?:go|move|walk|step|head) (?:to the )?")


def bare(text: str) -> str:
    """`text` in lower case and single blanks, without marks around it or a verb of motion: ``**Go to the north.**`` → ``north``."""
    return _VERB.sub("", " ".join(text.lower().split()).strip(" .!`'\"*"))

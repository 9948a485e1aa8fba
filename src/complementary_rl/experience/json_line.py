"""One line of a JSON lines file, with what is wrong with it in words."""

import json
from typing import Any


class NotJson(ValueError):
    """A line that holds no JSON value; the message says why, without a line number of its own."""


def parse(line: bytes) -> Any:
    """The value of a line. Raises NotJson."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"not JSON ({error.msg} at character {error.pos})") from None
    except ValueError:  # all that is left: Python refuses to read numbers of thousands of digits
        raise NotJson("not JSON (a number is too long)") from None
    except RecursionError:
        raise NotJson("nested too deeply") from None

"""Prompt sets: folders of jinja2 templates, one file per prompt, that turn records into the text of one user message.

A set is loaded whole and checked at once (every file there, valid, using only the variables its prompt has), so that a typo
shows before training starts and not in its first merge. Templates run in a sandbox: a set may come from anywhere.
"""

import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined, Template, TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from complementary_rl.errors import UserError

VARIABLES: dict[str, frozenset[str]] = {
    "actor": frozenset({"instructions", "description", "experience", "tool", "tool_call", "observation"}),
    "tool_reply": frozenset({"answer", "observation"}),
    "gate": frozenset({"instructions", "description", "experience", "rate", "observation"}),
    "distill": frozenset(
        {"instructions", "description", "entries", "turns", "final_observation", "success", "reward", "max_operations"}
    ),
    "merge": frozenset({"entries"}),
    "answer": frozenset({"instructions", "description", "entries", "observation", "question"}),
}
"""The prompts of a set, each with the variables its template may use; `docs/prompts.md` says what they hold."""

_FOLDER = Path(__file__).parent
_SUFFIX = ".j2"


class PromptSet:
    """The templates of one folder, compiled. Build it with `load`."""

    def __init__(self, folder: Path, templates: dict[str, Template]) -> None:
        self.folder = folder
        self._templates = templates

    @classmethod
    def load(cls, name_or_path: str | Path) -> "PromptSet":
        """Load a shipped set by name (`compact`, `instruct`) or any folder by path.

        Raises UserError when there is no such set, or when one of its files is missing, has a syntax error, or uses a variable
        that its prompt does not have.
        """
        folder = _find(name_or_path)
        missing = [name + _SUFFIX for name in VARIABLES if not (folder / (name + _SUFFIX)).is_file()]
        if missing:
            raise UserError(
                f"prompt set {folder} lacks {', '.join(missing)}: a set has a file for every prompt; start from a copy of "
                f"{_FOLDER / 'instruct'}"
            )
        environment = ImmutableSandboxedEnvironment(
            loader=FileSystemLoader(folder),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,  # prompts are plain text, not HTML
        )
        return cls(folder, {name: _compile(environment, folder, name) for name in VARIABLES})

    def render(self, name: str, **variables: Any) -> str:
        """The text of prompt `name`, a key of `VARIABLES`, without a trailing newline of the file.

        Raises UserError, naming the file and line, when a variable is missing or the template fails.
        """
        template = self._templates[name]
        try:
            return template.render(variables)
        except UndefinedError as error:
            raise UserError(f"prompt {self._place(name, error)}: {error.message}; pass it, or test it with `is defined`") from error
        except Exception as error:  # a user's template can raise anything; whatever it is, the file is what has to be mended
            raise UserError(
                f"prompt {self._place(name, error)} failed: {type(error).__name__}: {error}; mend the template"
            ) from error

    def _place(self, name: str, error: Exception) -> str:
        # jinja2 rewrites tracebacks, so that frames of templates carry the template's file and line.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(self.folder))]
        return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(self.folder / (name + _SUFFIX))


def shipped_sets() -> list[str]:
    """Names of the sets in the package."""
    return sorted(path.name for path in _FOLDER.iterdir() if (path / ("actor" + _SUFFIX)).is_file())


def _find(name_or_path: str | Path) -> Path:
    names = shipped_sets()
    if name_or_path in names:
        return _FOLDER / name_or_path
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return folder.resolve()
    close = get_close_matches(str(name_or_path), names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "give the path of a folder with one .j2 file per prompt"
    raise UserError(f"no prompt set {str(name_or_path)!r}: shipped sets are {', '.join(names)}; {hint}")


def _compile(environment: ImmutableSandboxedEnvironment, folder: Path, name: str) -> Template:
    file = folder / (name + _SUFFIX)
    try:
        unknown = find_undeclared_variables(environment.parse(file.read_text(encoding="utf-8"))) - VARIABLES[name]
        if unknown:
            raise UserError(_unknown_variable(file, name, min(unknown)))
        return environment.get_template(file.name)
    except TemplateSyntaxError as error:
        raise UserError(f"prompt {error.filename or file}:{error.lineno}: {error.message}; mend the template") from error
    except (TemplateError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"prompt {file} cannot be read: {error}; save it as UTF-8 text in jinja2 syntax") from error


def _unknown_variable(file: Path, name: str, variable: str) -> str:
    known = sorted(VARIABLES[name])
    close = get_close_matches(variable, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"prompt {file} uses {variable!r}, which {name!r} does not have: {hint}It has {', '.join(known)}"

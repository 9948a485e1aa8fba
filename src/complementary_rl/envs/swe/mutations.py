"""Small bugs as people make them: a wrong comparison, an operator, a constant off by one, a condition turned round.

A mutation replaces a few characters of the source, so that nothing but the bug tells where it is: comments and layout stay.
"""

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SWAPPED = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "/"), ast.Div: ("/", "*"), ast.Mod: ("%", "//"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
_SIBLINGS = [
    ("min", "max"),
    ("any", "all"),
    ("startswith", "endswith"),
    ("lstrip", "rstrip"),
    ("upper", "lower"),
    ("append", "insert"),
]
_SIBLINGS += [("find", "rfind"), ("split", "rsplit"), ("partition", "rpartition"), ("popitem", "pop"), ("add", "discard")]
_SIBLING = {one: other for pair in _SIBLINGS for one, other in (pair, pair[::-1])}
_LARGEST_CONSTANT = 100
_CONTEXT = 3


@dataclass(frozen=True, slots=True)
class Mutation:
    """Bytes `start` to `end` of a source become `text`."""

    start: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        raw = source.encode()
        return (raw[: self.start] + self.text.encode() + raw[self.end :]).decode()


def mutations(source: str) -> list[Mutation]:
    """All mutations of what functions do, in the order of the source; each leaves valid Python. Raises SyntaxError."""
    tree = ast.parse(source)
    inside = [
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
        for node in _code(statement)
    ]
    places = _Places(source)
    found = {mutation for node in inside for mutation in _of(node, places)}
    return [one for one in sorted(found, key=lambda one: (one.start, one.end, one.text)) if _valid(one.apply(source))]


def unified(path: str, before: str, after: str) -> str:
    """The diff, with so much around it that the text after the change is there only once."""
    for context in (_CONTEXT, 3 * _CONTEXT, 9 * _CONTEXT):
        lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
        diff = list(difflib.unified_diff(*lines, f"a/{path}", f"b/{path}", n=context))
        if after.count("".join(line[1:] for line in diff[3:] if line[0] in " +")) == 1:
            break
    return "".join(diff)


class _Places:
    def __init__(self, source: str) -> None:
        self.raw = source.encode()
        self._lines = [0]
        for line in self.raw.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and all below it that runs: no annotations, decorators, messages of errors or docstrings."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _code(child)


def _of(node: ast.AST, places: _Places) -> Iterator[Mutation]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield from _operator(operator, left, right, places)
        case ast.BinOp(left=left, op=operator, right=right):
            # Text has no other operators that would run.
            if not any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (left, right)):
                yield from _operator(operator, left, right, places)
        case ast.BoolOp(op=operator, values=[left, right]):
            yield from _operator(operator, left, right, places)
        case ast.Constant(value=bool() as value):
            yield Mutation(places.start(node), places.end(node), str(not value))
        case ast.Constant(value=int() as value) if value <= _LARGEST_CONSTANT:
            yield Mutation(places.start(node), places.end(node), str(value + 1))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Mutation(places.start(node), places.start(operand), "")
        case ast.If(test=ast.Name() | ast.Call() | ast.Attribute() as test):
            yield Mutation(places.start(test), places.start(test), "not ")
        case ast.Break():
            yield Mutation(places.start(node), places.end(node), "continue")
        case ast.Continue():
            yield Mutation(places.start(node), places.end(node), "break")
        case ast.Call(args=[first, second], keywords=[]) if not isinstance(second, ast.Starred):
            texts = [places.raw[places.start(one) : places.end(one)].decode() for one in (first, second)]
            between = places.raw[places.end(first) : places.start(second)].decode()
            if texts[0] != texts[1]:
                yield Mutation(places.start(first), places.end(second), texts[1] + between + texts[0])
        case ast.Call(func=ast.Name(id=name) as called) if name in _SIBLING:
            yield Mutation(places.start(called), places.end(called), _SIBLING[name])
        case ast.Call(func=ast.Attribute(attr=name) as called) if name in _SIBLING:
            yield Mutation(places.end(called) - len(name), places.end(called), _SIBLING[name])
        case _:
            return


def _operator(operator: ast.AST, left: ast.expr, right: ast.expr, places: _Places) -> Iterator[Mutation]:
    if type(operator) not in _SWAPPED:
        return
    sign, other = _SWAPPED[type(operator)]
    begin, end = places.end(left), places.start(right)
    gap = places.raw[begin:end].decode()
    edge = r"\b" if sign[0].isalpha() else ""
    found = list(re.finditer(edge + re.escape(sign) + edge, gap))
    # There may be a comment between the two.
    if len(found) == 1 and "#" not in gap and gap.isascii():
        yield Mutation(begin + found[0].start(), begin + found[0].end(), other)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _valid(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True

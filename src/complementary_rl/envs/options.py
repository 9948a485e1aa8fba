"""Checks that the options of suites have in common."""

from complementary_rl.errors import UserError


def require_at_least(suite: str, least: int, **options: int) -> None:
    """Raise UserError, naming `suite` and the option, for the first of `options` below `least`."""
    for option, value in options.items():
        if value < least:
            raise UserError(f"{suite}: {option} is {value}; it must be at least {least}")

"""The exceptions users meet. Everything else that is raised is a bug in this package.

`UserError` is a `ValueError` whose message says what is wrong *and what to do*; faces (CLI, report) print it without a traceback.
Faults of the world outside (environments, disks) are `InfrastructureError`: retried within a budget, then raised.
"""


class UserError(ValueError):
    """Bad input from the user. The message names the cause and the remedy."""


class ConfigError(UserError):
    """A configuration that cannot be used; the message starts with the dotted path of the field."""


class EnvironmentFault(Exception):
    """One environment failed one episode: it raised, hung, or returned something that breaks the protocol."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class InfrastructureError(RuntimeError):
    """The fault budget of a run is spent, or a resource the run cannot do without (disk, bank) is gone."""


class BankError(UserError):
    """A bank file that cannot be used: locked by another process, from another run, damaged, or of an unknown schema."""


class CheckpointError(UserError):
    """A checkpoint that cannot be loaded: missing, incomplete, or made with another configuration."""

"""Mend bugs in small real packages: a repository, an issue, a shell and an editor in a sandbox, hidden tests."""

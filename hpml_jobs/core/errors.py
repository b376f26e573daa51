"""Errors that end the program with one line: what is wrong, where, and how to fix it."""


class HpmlError(Exception):
    """The command failed: its message is printed in one line, exit code 1."""

    exit_code = 1


class NodeFaultError(HpmlError):
    """This node cannot run the cell, another one may: as HpmlError, and the node is avoided."""


class InterruptError(HpmlError):
    """Ctrl-C ended the command: as HpmlError with what was done until then, exit code 130."""

    exit_code = 130


class UsageError(HpmlError):
    """The command line is wrong: as HpmlError, exit code 2."""

    exit_code = 2

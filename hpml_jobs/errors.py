"""What stops the program: one line that names the thing, the place and the next step."""


class HpmlError(Exception):
    """It could not be done; the front door prints the message in one line, exit code 1."""

    exit_code = 1


class UsageError(HpmlError):
    """What was asked for is wrong; the same, exit code 2."""

    exit_code = 2

"""A command of `itemrec`, called in this process."""

from typer.testing import CliRunner, Result

from itemrec.cli.app import app


def call(*args: object, code: int = 0) -> Result:
    """The result of a command that must end with this exit code; no line of it is wrapped."""
    result = CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "400"})
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result

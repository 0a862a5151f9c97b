"""docs/cli.md has every command, option and default as they are."""

from tests.repo.cli_page import made, written


def test_the_reference_of_the_command_line_is_that_of_the_commands() -> None:
    assert written() == made(), "python -m tests.repo.cli_page writes it anew"

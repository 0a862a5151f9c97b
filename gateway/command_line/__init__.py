"""What the command line is made of, beside the commands: names loaded on call, refusals, progress, completion.

Nothing here may import what serves: `prefixgate --help` and a press of Tab import this package and Typer, no more.

    lazy.py       names -> commands, loaded when they are called; what ends a command, turned into an exit code
    refusals.py   why a command does not do what it was asked: a line for people, an object for programs
    examples.py   an example and the exit codes at the end of each help
    completing.py tenants, models and endpoints for the shell, read in the configuration's files
    progress.py   a bar on standard error, on a terminal alone
    answers.py    JSON on standard output
    words.py      figures as people read them
"""

__all__: list[str] = []

"""`penstock completion`: prints the code with which a shell completes commands, flags and names of topics."""

import argparse

from penstock.cli.command_line import NewParser

SHELLS = ("bash", "zsh", "fish")


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock completion` with the command line."""
    parser = new_parser(
        description='Print the completion code of a shell. In bash and zsh: eval "$(penstock completion bash)". '
        "In fish: penstock completion fish | source."
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the code."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["penstock"], shell=arguments.shell))
    return 0

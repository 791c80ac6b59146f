"""``python -m tilewright``: the command line without an installed script."""

from tilewright.tools.cli import command

if __name__ == "__main__":
    command()

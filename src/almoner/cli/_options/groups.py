"""Groups of commands: alone they print their help, and errors become one line and an exit code; options of before."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from almoner.cli._shown.tables import use_letters_of_the_terminal
from almoner.errors import AlmonerError, ArgumentError, DataError, MissingExtra

__all__ = ["Commands", "Group", "refusing"]

_COMMAND = "almoner.command"


class Group(TyperGroup):
    """Prints its help where no command is given, and remembers which command runs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help())
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        found = super().resolve_command(ctx, args)
        ctx.meta[_COMMAND] = found[1]
        return found


class Commands(Group):
    """The whole command line."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        use_letters_of_the_terminal()
        return super().main(*args, **kwargs)

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except AlmonerError as error:
            words = str(error)
            if isinstance(error, ArgumentError):
                words = _options_named(words, ctx.meta.get(_COMMAND))
            Console(stderr=True).print(f"[bold red]{type(error).__name__}[/]: ", end="")
            for line in (words, *getattr(error, "__notes__", ())):  # notes are for who runs the command
                Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)
            usage = isinstance(error, ArgumentError | DataError)
            raise typer.Exit(2 if usage else 3 if isinstance(error, MissingExtra) else 1) from None
        except BrokenPipeError:  # the reader of the output stopped reading
            raise
        except OSError as error:  # a file that cannot be written: its name and why
            Console(stderr=True).print(
                f"{type(error).__name__}: {error}", markup=False, highlight=False, soft_wrap=True
            )
            raise typer.Exit(2) from None


def refusing(told: Callable[[], Mapping[str, str]]) -> type[TyperCommand]:
    """A command that refuses options of earlier versions, or of other commands, and says the line to write.

    Args:
        told: gives the line for each option; ``{}`` stands for the value that came, if one did.
    """

    class Refusing(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            known = {option for each in self.get_params(ctx) for option in (*each.opts, *each.secondary_opts)}
            for place, word in enumerate(args):
                option, given, value = word.partition("=")
                if option == "--":
                    break
                if option[:2] == "--" and option not in known and option in (lines := told()):
                    following = args[place + 1 : place + 2]
                    value = value if given else following[0] if following and following[0][:2] != "--" else "..."
                    raise ArgumentError(f"{option}: {lines[option].replace('{}', value)}")
            return super().parse_args(ctx, args)

    return Refusing


def _options_named(words: str, command: Any) -> str:
    """An argument's name in an error, as the option of the command that it came from."""
    names: dict[str, str] = {
        each.name: each.opts[0] for each in getattr(command, "params", ()) if each.opts[0].startswith("--")
    }
    return re.sub(r"(?<![\w.-])([a-z_]+)(?==\S)", lambda found: names.get(found[1], found[1]), words)

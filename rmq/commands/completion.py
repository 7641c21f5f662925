"""`rmq completion SHELL`: the script that makes a shell complete our commands and options."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  eval "$(rmq completion bash)"            in ~/.bashrc
    zsh:   eval "$(rmq completion zsh)"             in ~/.zshrc
    fish:  rmq completion fish > ~/.config/fish/completions/rmq.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "rmq", "_RMQ_COMPLETE").source())

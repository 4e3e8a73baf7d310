"""The commands, one file each; a file's `add(cli)` gives its command to the typer app. Nothing here imports typer before that."""

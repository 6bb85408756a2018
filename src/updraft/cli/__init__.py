"""The command line. Importing it loads neither Spark nor Arrow, so that `--help` is instant."""

from updraft.cli.app import app, main

__all__ = ["app", "main"]

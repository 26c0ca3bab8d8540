"""Aisle: ticketing for the seated on-sale."""

from importlib.metadata import version

__version__ = version("aisle")

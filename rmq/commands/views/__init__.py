"""Answers of nodes as tables and lines. Pure."""

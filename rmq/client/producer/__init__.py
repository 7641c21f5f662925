"""Sending, also in transactions."""

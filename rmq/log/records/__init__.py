"""Stored messages as bytes, and what their properties say: pure, used by broker, client and Spark alike."""

"""Matching by groups."""

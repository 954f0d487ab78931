"""The execute side of one job: its scratch directory, its files, its keeper. Decides nothing about claims or
policy.
"""

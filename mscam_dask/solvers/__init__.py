"""Solvers for the subproblems of MSCAM and MSCAN, each with its problem statement.

They depend neither on where the data are stored nor on where a step runs.
"""

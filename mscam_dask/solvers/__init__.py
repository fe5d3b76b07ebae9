"""The sub-problems of MSCAM and MSCAN, each with its problem statement.

Nothing here knows where data are stored or on which machine a step runs.
"""

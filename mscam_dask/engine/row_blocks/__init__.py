"""Large data by blocks of rows: submission of the tasks of every stage of a fit.

No task reads, holds or returns more than some blocks of rows, a small matrix, or a vector with one
number for each sample: docs/decisions/0075. Blocks depend on the number of samples only, so the result
is the same for any number of workers.
"""

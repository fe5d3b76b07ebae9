"""Frozen value types shared by every layer: parameters, statuses, records, results."""

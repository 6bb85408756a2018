"""Runs topologies on Spark. The only package that imports pyspark.

It imports nothing by itself: a new worker's Python process loads `daemon` and what a batch needs, and nothing of the driver's.
"""

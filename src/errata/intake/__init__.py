"""Files from outside made into typed rows, or into an explanation of why not.

Knows pyarrow and no Spark; may import the model.
"""

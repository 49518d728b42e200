"""Files to typed rows, or to the reason why a line is none: bytes, formats, layouts, types and conversions.

Uses pyarrow and no Spark; may import the model.
"""

"""Sessions, Java, and the model's types in Spark's terms. May import the model."""

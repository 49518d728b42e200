"""What a person is told of a plan: `explain` gathers it and says it in words, `draw` draws it."""

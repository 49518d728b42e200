"""What a person is told of a plan: `explanation` collects it and prints it, `drawing` draws it."""

"""A plan explained to a person: `explanation` collects the facts and prints them, `remarks` has the warnings, `drawing`
draws it."""

"""Reading: archives, answers, their changes and stories, how everything stands. Nothing is changed."""

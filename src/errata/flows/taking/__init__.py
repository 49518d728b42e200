"""Rows and corrections taken in, and what cannot be: from files to history."""

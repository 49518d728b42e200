"""Registered texts: read, checked, and printed without their constants.

`read` makes a plan of a text, `statement` prints a plan's statement, and `conditions` brings conditions to one form.
"""

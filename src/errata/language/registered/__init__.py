"""Registered texts: read, checked, and printed without their constants.

`read.read_registered` makes a plan of a text, and is what other rooms call; `statement` prints a plan's statement, and
`conditions` brings conditions to one form.
"""

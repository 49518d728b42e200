"""Archives kept fit: what is old is dropped, what is small merged, what nobody needs removed, what is wrong found."""

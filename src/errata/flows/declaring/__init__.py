"""What is declared read, checked, explained, and brought into the catalog."""

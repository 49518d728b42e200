-- Update patterns, query 3: the negation of two links on the source.
SELECT src, dst, bytes
FROM negation(sliding(link1, '2000 seconds'), sliding(link2, '2000 seconds'), 'src')

-- Update patterns, query 2, its second variant: the distinct pairs of source and destination.
SELECT DISTINCT src, dst
FROM sliding(link1, '2000 seconds')

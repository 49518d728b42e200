-- Update patterns, query 2: the distinct sources on a link.
SELECT DISTINCT src
FROM sliding(link1, '2000 seconds')

-- Update patterns, query 4: the distinct sources on two links, joined on the source.
SELECT a.src
FROM (SELECT DISTINCT src FROM sliding(link1, '2000 seconds')) AS a
JOIN (SELECT DISTINCT src FROM sliding(link2, '2000 seconds')) AS b ON a.src = b.src

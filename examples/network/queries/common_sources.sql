-- Query 4: who has used both links.
SELECT a.src
FROM (SELECT DISTINCT src FROM sliding(link1, '2000 seconds')) AS a
JOIN (SELECT DISTINCT src FROM sliding(link2, '2000 seconds')) AS b ON a.src = b.src

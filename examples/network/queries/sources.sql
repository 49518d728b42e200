-- Query 2: who has used a link.
SELECT DISTINCT src
FROM sliding(link1, '2000 seconds')

-- Query 2, with pairs: who has spoken with whom over a link.
SELECT DISTINCT src, dst
FROM sliding(link1, '2000 seconds')

SELECT src, a.n AS first, b.n AS second
FROM (SELECT src, count(*) AS n FROM sliding(link1, '2 minutes') GROUP BY src) AS a
FULL JOIN (SELECT src, count(*) AS n FROM sliding(link2, '2 minutes') GROUP BY src) AS b USING (src)

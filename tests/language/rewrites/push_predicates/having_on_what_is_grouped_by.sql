SELECT src, count(*) AS packets FROM sliding(link1, '1 hour') GROUP BY src HAVING src <> 'x' AND count(*) > 10

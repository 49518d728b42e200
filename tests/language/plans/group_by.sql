SELECT src, upper(protocol) AS protocol, count(*) AS packets, sum(bytes) AS bytes
FROM sliding(link1, '1 hour')
GROUP BY src, upper(protocol)
HAVING packets > 10 AND max(bytes) < 1000

SELECT src, count(*) AS packets
FROM sliding_rows(link1, 1000)
GROUP BY src

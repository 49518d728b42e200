SELECT count(*) AS packets
FROM sliding(link1, '1 hour')

SELECT *
FROM sliding(link1, '5 minutes') AS a
JOIN sliding(link2, '1 minute') AS b USING (src, dst, protocol, id, time, bytes)

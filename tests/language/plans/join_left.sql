SELECT a.src, a.protocol, b.time AS answered
FROM sliding(link1, '2 minutes') AS a
LEFT JOIN sliding(link2, '1 minute') AS b ON a.src = b.src AND b.protocol <> 'ftp'
WHERE a.protocol = 'ftp'

SELECT a.src, b.dst
FROM sliding((SELECT src, time FROM link1 WHERE protocol = 'ftp'), '5 minutes') AS a
JOIN sliding_rows((SELECT src, dst FROM link2), 10) AS b ON a.src = b.src

SELECT a.src, b.src AS bigger, event_time() AS time
FROM sliding(link1, '5 minutes') AS a
JOIN sliding(link2, '1 minute') AS b ON a.bytes < b.bytes AND event_time(b) >= event_time(a)

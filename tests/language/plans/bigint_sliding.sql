SELECT a.value, b.value AS other
FROM sliding(ticks, 1000) AS a
JOIN sliding(ticks, 500) AS b ON a.value = b.value

SELECT a.dst AS here, b.dst AS there
FROM sliding(link1, '1 hour') AS a JOIN sliding(link2, '1 hour') AS b ON a.src = b.src
WHERE a.src = '10.0.0.1'

SELECT src FROM sliding(link1, '1 hour')
INTERSECT
SELECT dst FROM sliding(link2, '1 hour')

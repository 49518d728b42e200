SELECT src FROM sliding(link1, '1 hour')
EXCEPT
SELECT dst FROM sliding(link2, '1 hour')

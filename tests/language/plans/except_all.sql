SELECT src FROM sliding(link1, '1 hour')
EXCEPT ALL
(SELECT dst FROM sliding(link2, '1 hour') UNION ALL SELECT dst FROM link3)

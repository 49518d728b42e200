SELECT a.src AS one, b.src AS two, c.src AS three
FROM sliding(link1, '1 minute') AS a
CROSS JOIN sliding(link2, '1 minute') AS b, sliding(link3, '1 minute') AS c

SELECT d.src AS src FROM (SELECT DISTINCT src, dst FROM sliding(link1, '1 hour')) AS d

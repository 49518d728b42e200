SELECT A.SRC, a.Bytes AS `order`, `A`.`dst`
FROM Sliding(LINK1, '1 Hour') AS a
WHERE Protocol = 'ftp'

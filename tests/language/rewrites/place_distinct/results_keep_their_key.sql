SELECT DISTINCT time, id, src FROM sliding(link1, '1 hour')

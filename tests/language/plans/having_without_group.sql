SELECT 'busy' AS state
FROM sliding(link1, '1 hour')
HAVING count(*) > 1000

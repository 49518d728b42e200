-- The same: all rows of the last hour, half of those of the hour before, a quarter of those before that, and so on.
SELECT sum(CASE WHEN exit = 'Ashby' THEN 1 ELSE -1 END) AS more_cars, count(*) AS passes
FROM passes TABLESAMPLE by_age('1 hour', 0.5)
WHERE time >= '2026-11-18 07:00:00' AND sensor = 1 AND exit IN ('Ashby', 'Bay Bridge')

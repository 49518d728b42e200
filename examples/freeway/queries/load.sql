-- Load on the freeway: how many more cars have passed Ashby than the Bay Bridge since the rush hour began.
SELECT sum(CASE WHEN exit = 'Ashby' THEN 1 ELSE -1 END) AS more_cars, count(*) AS passes
FROM passes
WHERE time >= '2026-11-18 07:00:00' AND sensor = 1 AND exit IN ('Ashby', 'Bay Bridge')

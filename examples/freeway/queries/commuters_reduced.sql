-- The same: today's passes as they are, and of the last seven days the summary by hour.
SELECT today.exit, count(*) AS commuters
FROM (
  SELECT DISTINCT exit, car, hour(time) AS hour
  FROM passes
  WHERE time >= '2026-11-18 00:00:00'
) AS today
JOIN (
  SELECT exit, car, hour(at) AS hour, count(*) AS days
  FROM hourly
  WHERE at >= '2026-11-11 00:00:00' AND at < '2026-11-18 00:00:00'
  GROUP BY exit, car, hour(at)
  HAVING count(*) = 7
) AS week
ON today.exit = week.exit AND today.car = week.car AND today.hour = week.hour
GROUP BY today.exit

-- Commuters: of the cars that have passed an exit today, those that passed it at the same hour on each of the last
-- seven days.
SELECT today.exit, count(*) AS commuters
FROM (
  SELECT DISTINCT exit, car, hour(time) AS hour
  FROM passes
  WHERE time >= '2026-11-18 00:00:00'
) AS today
JOIN (
  SELECT exit, car, hour, count(*) AS days
  FROM (
    SELECT DISTINCT exit, car, hour(time) AS hour, to_date(time) AS day
    FROM passes
    WHERE time >= '2026-11-11 00:00:00' AND time < '2026-11-18 00:00:00'
  ) AS seen
  GROUP BY exit, car, hour
  HAVING count(*) = 7
) AS week
ON today.exit = week.exit AND today.car = week.car AND today.hour = week.hour
GROUP BY today.exit

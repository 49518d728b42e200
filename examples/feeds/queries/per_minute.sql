-- How many quotes there are in every minute, and their mean price.
SELECT window_start, count(*) AS quotes, avg(price) AS mean
FROM replicated
GROUP BY window(time, '1 minute')

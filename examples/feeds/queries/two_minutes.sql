-- The highest price of each company in every two minutes.
SELECT symbol, window_start, max(highest) AS highest, sum(ticks) AS ticks
FROM highs
GROUP BY symbol, window(minute, '2 minutes')

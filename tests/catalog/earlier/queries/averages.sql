SELECT symbol, window_end, avg(price) AS price, count(*) AS n FROM quotes GROUP BY symbol, window(time, '5 minutes')

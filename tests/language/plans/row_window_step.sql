SELECT symbol, window.no AS number, first(price) AS opening, last(price) AS closing
FROM quotes
GROUP BY symbol, row_window(10, 1)

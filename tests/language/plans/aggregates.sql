SELECT
  symbol,
  count(*) AS quotes,
  count(price) AS prices,
  count(DISTINCT price) AS different,
  sum(volume) AS volume,
  avg(price) AS average,
  mean(volume) AS mean_volume,
  min(price) AS low,
  max(price) AS high,
  stddev(price) AS spread,
  stddev_samp(volume) AS volume_spread,
  first(price) AS opening,
  last_value(price) AS closing,
  max(price) - min(price) AS span
FROM quotes
GROUP BY symbol, window(time, '1 day')
